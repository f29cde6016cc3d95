-- Pages of other origins that may speak to an agent at its own host; '*' stands for all.
alter table agents add column allowed_origins text[] not null default '{}';
