-- A stored answer that shows a secret lives no longer than that secret (docs/decisions/0167-withdrawn-answers.md).
alter table idempotency add column secret_of uuid;
create index idempotency_secret on idempotency (secret_of) where secret_of is not null;

-- The row stays, without what it held: the request was done, and is not done again.
create function forget_shown_secret(p_owner uuid) returns void language sql as $$
  update idempotency set sealed_body = null, wrapped_key = null, kek_id = null
  where secret_of = p_owner and sealed_body is not null
$$;

create function forget_revoked_key() returns trigger language plpgsql as $$
begin
  perform forget_shown_secret(new.id);
  return null;
end $$;
create trigger forget_revoked_key after update of revoked_at on api_keys
  for each row when (new.revoked_at is not null) execute function forget_revoked_key();

-- A rotation of the key-encryption key changes how a value is wrapped, not its sealed bytes.
create function forget_endpoint_secret() returns trigger language plpgsql as $$
begin
  perform forget_shown_secret(old.endpoint_id);
  return null;
end $$;
create trigger forget_replaced_endpoint_secret after update of sealed_value on webhook_endpoint_secrets
  for each row when (old.name = 'current' and old.sealed_value <> new.sealed_value)
  execute function forget_endpoint_secret();
create trigger forget_deleted_endpoint_secret after delete on webhook_endpoint_secrets
  for each row execute function forget_endpoint_secret();

create function forget_channel_secret() returns trigger language plpgsql as $$
begin
  perform forget_shown_secret(old.channel_id);
  return null;
end $$;
create trigger forget_replaced_channel_secret after update of sealed_value on channel_credentials
  for each row when (old.name <> '~previous' and old.sealed_value <> new.sealed_value)
  execute function forget_channel_secret();
create trigger forget_deleted_channel_secret after delete on channel_credentials
  for each row execute function forget_channel_secret();
