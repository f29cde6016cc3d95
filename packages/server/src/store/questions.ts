import type { EventBody } from '../domain/events.ts';
import type { Answer, KeptAnswer, Question } from '../domain/questions.ts';
import type { Database } from './database.ts';
import { eventOf, type EventRow } from './events.ts';

/** Before the run is told to wait, so that whoever reads that it waits finds the question. */
export async function insertQuestion(db: Database, runId: string, question: Question): Promise<void> {
  await db.sql`
    insert into questions (run_id, request_id, kind, question)
    values (${runId}, ${question.requestId}, ${question.kind}, ${JSON.stringify(question)}::text::json)`;
}

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

export async function cancelQuestion(db: Database, runId: string, requestId: string): Promise<void> {
  await db.sql`
    update questions set resolved_at = now()
    where run_id = ${runId} and request_id = ${requestId} and resolved_at is null`;
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
