/** The embedded PostgreSQL cannot be started or used. The message is one clear line for the operator. */
export class EmbeddedError extends Error {}
