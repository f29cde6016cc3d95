-- Days of only failures after which the operator was last told; 0: not since the last success.
alter table webhook_endpoints add column warned_days smallint not null default 0;
