-- Of events that began a turn: whom their answers are counted for (mail, other bots), so that loops end.
alter table inbound_events add column sender text;
create index inbound_of_sender on inbound_events (channel_id, sender, received_at) where sender is not null;
