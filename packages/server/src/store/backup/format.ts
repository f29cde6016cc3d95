/** The file is no backup, damaged, cut off, or of another time. The message is one clear line for the operator. */
export class BackupError extends Error {}

/**
 * A backup of the database is gzip over UTF-8 lines:
 *
 *     {"format":"berth-database","formatVersion":1,"createdAt":…,"serverVersion":…,"migrations":[{version,name,checksum}]}
 *     {"table":"orgs","columns":["id","name",…]}
 *     <rows in the text format of PostgreSQL's COPY, one a line>
 *     \.
 *     {"rows":2,"identities":{"slot":"7"}}
 *     … the next table …
 *     {"end":true,"tables":17,"rows":1234,"sha256":"<of every byte before this line>"}
 *
 * Tables come in an order in which no row refers to a table that follows. Unlogged tables are left out: what they
 * hold may be lost at any time. COPY's text format is stable over PostgreSQL versions, and any of them reads it.
 */
export const FORMAT = 'berth-database';
export const FORMAT_VERSION = 1;

export interface BackupHeader {
  format: typeof FORMAT;
  formatVersion: number;
  createdAt: string;
  serverVersion: string;
  migrations: { version: number; name: string; checksum: string }[];
}

export interface TableStart {
  table: string;
  columns: string[];
}

export interface TableEnd {
  rows: number;
  /** Last value that each identity column gave out, as decimal text. */
  identities: Record<string, string>;
}

export interface BackupEnd {
  end: true;
  tables: number;
  rows: number;
  sha256: string;
}

export interface BackupSummary {
  schemaVersion: number;
  tables: number;
  rows: number;
}
