import type { EventBody } from '../domain/events.ts';
import type { Answer, KeptAnswer, Question } from '../domain/questions.ts';
import type { Database } from './database.ts';
import { eventOf, type EventRow } from './events.ts';

export async function findQuestion(db: Database, runId: string, requestId: string): Promise<Question | null> {
  const rows = await db.sql<{ question: Question }[]>`
    select question from questions where run_id = ${runId} and request_id = ${requestId}`;
  return rows[0]?.question ?? null;
}

/** What callers said, for the owners of the runs. */
export async function answeredQuestions(
  db: Database,
  runIds: string[],
): Promise<{ runId: string; requestId: string; answer: Answer }[]> {
  return db.sql<{ runId: string; requestId: string; answer: Answer }[]>`
    select run_id as "runId", request_id as "requestId", answer from questions
    where run_id = any (${runIds}::uuid[]) and answer is not null`;
}

export interface OpenQuestion {
  question: Question;
  isAnswered: boolean;
  /** Of the answer, when it came with one. */
  repeatKey: string | null;
}

/** Those of a run that nobody has cancelled, oldest first. */
export async function openQuestions(db: Database, runId: string): Promise<OpenQuestion[]> {
  return db.sql<OpenQuestion[]>`
    select question, answer is not null as "isAnswered", answer ->> 'repeatKey' as "repeatKey" from questions
    where run_id = ${runId} and (resolved_at is null or answer is not null) order by request_id`;
}

export interface AskedQuestion {
  question: Question;
  /** `cancelled`: nobody will answer it any more. */
  state: 'open' | 'answered' | 'cancelled';
}

/** An earlier version wrote a question before its events. One without them was told to nobody, and its line comes again. */
export async function forgetUntold(db: Database, runId: string): Promise<void> {
  await db.sql`
    delete from questions q using runs r
      where q.run_id = ${runId} and r.id = q.run_id and q.resolved_at is null
        and not exists (
          select 1 from events e
            where e.conversation_id = r.conversation_id and e.run_id = r.id
              and e.type in ('permission.requested', 'input.requested') and e.data ->> 'requestId' = q.request_id)`;
}

/** All that a run has asked, oldest first. */
export async function askedQuestions(db: Database, runId: string): Promise<AskedQuestion[]> {
  return db.sql<AskedQuestion[]>`
    select question, case when answer is not null then 'answered' when resolved_at is null then 'open' else 'cancelled' end as state
    from questions where run_id = ${runId} order by request_id`;
}

/**
 * Nobody will answer it: stored with the event that says so, by the owner of the run. Gives the event as it was written; none when
 * a caller has answered before, or the lane is another owner's.
 */
export async function cancelQuestion(
  db: Database,
  owner: { conversationId: string; epoch: string; runId: string },
  requestId: string,
  event: EventBody,
) {
  const { conversationId, epoch, runId } = owner;
  const at = new Date();
  const rows = await db.sql<EventRow[]>`
    with lane as (
      select conversation_id from lanes
        where conversation_id = ${conversationId} and epoch = ${epoch}::bigint and run_id = ${runId} and state = 'running' for update
    ), cancelled as (
      update questions set resolved_at = ${at} from lane
        where run_id = ${runId} and request_id = ${requestId} and resolved_at is null returning run_id
    )
    -- Of the cancelled one, so that nothing is told where there is none.
    select e.* from cancelled c, append_event(${conversationId}, c.run_id, ${event.type}, ${JSON.stringify(event.data)}, ${at}) e`;
  return rows.map(eventOf);
}

/** Stores a caller's answer with its event; null when the question is not open any more. */
export async function answerQuestion(
  db: Database,
  runId: string,
  requestId: string,
  answer: KeptAnswer,
  event: EventBody,
) {
  const at = new Date();
  const [row] = await db.sql<
    {
      outcome: string;
      conversation_id: string;
      events: (Pick<EventRow, 'seq' | 'type' | 'data'> & { runId: string })[] | null;
    }[]
  >`select * from answer_question(${runId}, ${requestId}, ${JSON.stringify(answer)}, ${event.type},
      ${JSON.stringify(event.data)}, ${at})`;
  if (row?.outcome !== 'resolved') return null;
  return (row.events ?? []).map(({ runId: run_id, ...event }) =>
    eventOf({ ...event, run_id, conversation_id: row.conversation_id, at }),
  );
}
