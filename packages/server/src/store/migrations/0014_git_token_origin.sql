-- The origin that a secret was set for, when the service itself sends it somewhere (GIT_TOKEN); null: nowhere.
alter table secrets add column sent_to text;
update secrets set sent_to =
  regexp_replace(lower(substring(agents.external_git_url from '^[Hh][Tt][Tt][Pp][Ss]://[^/?]+')), ':443$', '')
from agents where agents.id = secrets.agent_id and secrets.key = 'GIT_TOKEN';
