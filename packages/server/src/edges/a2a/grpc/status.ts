import { BinaryWriter } from '@bufbuild/protobuf/wire';
import { Metadata, status as codes } from '@grpc/grpc-js';
import type { StatusObject } from '@grpc/grpc-js';
import { GRPC_STATUS_DETAILS_BIN, grpcStatusFor } from '@a2a-js/sdk/errors/grpc';
import { A2AError, failureOf } from '../errors.ts';
import type { Failure } from '../errors.ts';

const RETRY_INFO = 'type.googleapis.com/google.rpc.RetryInfo';

/** An error as gRPC ends a call with it, and what else of it the log wants. */
export interface Ended {
  failure: Failure;
  status: StatusObject;
}

/** A2A 1.0.1, section 10.6: a status with google.rpc details; the first is an ErrorInfo. */
export function endedBy(error: unknown, requestId: string): Ended {
  const failure = failureOf(error, requestId);
  const code =
    error instanceof A2AError
      ? (grpcStatusFor(error) as codes)
      : codes[failure.statusName as keyof typeof codes];
  const metadata = new Metadata();
  metadata.set('x-request-id', requestId);
  metadata.set(GRPC_STATUS_DETAILS_BIN, statusBytes(code, failure));
  return { failure, status: { code, details: failure.message, metadata } };
}

/** google.rpc.Status: code = 1, message = 2, details = 3. */
function statusBytes(code: number, { message, details, retryAfterSeconds }: Failure): Buffer {
  const writer = new BinaryWriter().uint32(8).int32(code).uint32(18).string(message);
  for (const detail of details) any(writer, String(detail['@type']), detailBytes(detail));
  if (retryAfterSeconds !== undefined) any(writer, RETRY_INFO, retryBytes(retryAfterSeconds));
  return Buffer.from(writer.finish());
}

/** google.protobuf.Any: type_url = 1, value = 2. */
function any(writer: BinaryWriter, typeUrl: string, value: Uint8Array): void {
  writer.uint32(26).fork().uint32(10).string(typeUrl).uint32(18).bytes(value).join();
}

function detailBytes(detail: Record<string, unknown>): Uint8Array {
  const { fieldViolations } = detail as { fieldViolations?: { field: string; description: string }[] };
  const writer = new BinaryWriter();
  // google.rpc.BadRequest: field_violations = 1, each with field = 1 and description = 2.
  if (fieldViolations) {
    for (const { field, description } of fieldViolations)
      writer.uint32(10).fork().uint32(10).string(field).uint32(18).string(description).join();
    return writer.finish();
  }
  // google.rpc.ErrorInfo: reason = 1, domain = 2, metadata = 3 as a map.
  const { reason, domain, metadata = {} } = detail as { metadata?: Record<string, unknown> } & typeof detail;
  writer.uint32(10).string(String(reason)).uint32(18).string(String(domain));
  for (const [key, value] of Object.entries(metadata))
    writer.uint32(26).fork().uint32(10).string(key).uint32(18).string(String(value)).join();
  return writer.finish();
}

/** google.rpc.RetryInfo: retry_delay = 1, a Duration whose seconds = 1. */
function retryBytes(seconds: number): Uint8Array {
  return new BinaryWriter().uint32(10).fork().uint32(8).int64(Math.ceil(seconds)).join().finish();
}
