/** Messages that an agent gets by the clock (API contract, section 5). */

export type ScheduleStatus = 'active' | 'paused';

/** Each tick begins a conversation, or all go on with one. */
export const scheduleConversations = ['new', 'kept'] as const;
export type ScheduleConversation = (typeof scheduleConversations)[number];

/** What becomes of ticks that nobody was there for: nothing, or one message for all of them. */
export const scheduleMissed = ['skip', 'once'] as const;
export type ScheduleMissed = (typeof scheduleMissed)[number];

export type TickTrigger = 'schedule' | 'manual';
export type TickState = 'fired' | 'skipped';
