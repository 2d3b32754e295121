/**
 * All errors of the client. Their names are those of the Python client.
 *
 *     OpenEnvError
 *      +-- ConnectError            the client could not connect
 *      |    +-- AuthenticationError   the key is missing or unknown
 *      |    +-- PermissionRefused     the server denies access to this key or page
 *      +-- SessionLost             the episode is lost, or its state is unknown
 *      +-- ResponseTimeout         no answer in time
 *      |    +-- StepTimeout        the step's deadline has passed
 *      +-- ProtocolError           the peer broke the protocol
 *      +-- NotSupported            the server or the protocol lacks a feature
 *      +-- ServerError             the server answered with an error code
 *           +-- MalformedRequest      INVALID_JSON, UNKNOWN_TYPE
 *           +-- ValidationFailed      VALIDATION_ERROR
 *           +-- ExecutionFailed       EXECUTION_ERROR
 *           |    +-- ToolFailed       a tool failed
 *           +-- CapacityError         CAPACITY_REACHED
 *           +-- RateLimited           RATE_LIMITED
 *           +-- FactoryFailed         FACTORY_ERROR
 *           +-- SessionFailed         SESSION_ERROR
 *           +-- SessionBusy           SESSION_BUSY
 *           +-- MessageTooLarge       TOO_LARGE
 *           +-- NotSupportedByServer  NOT_SUPPORTED
 *
 * @module
 */

import type { StepResult } from "./client.ts";

/** The `data` of an error message: `message`, `code`, and fields that depend on the code. */
export type ErrorData = Readonly<Record<string, unknown>>;

/** A validation error of a field of a request. */
export interface FieldError {
  readonly type: string;
  /** The path to the field: names and indices. */
  readonly loc: readonly (string | number)[];
  readonly msg: string;
  readonly input?: unknown;
}

/** Base class of every error that this package throws on purpose. */
export class OpenEnvError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** The client could not connect to the server. */
export class ConnectError extends OpenEnvError {}

/** The server requires a key, and the client's key is missing or unknown. */
export class AuthenticationError extends ConnectError {}

/** The server denies access to this key or web page. */
export class PermissionRefused extends ConnectError {}

/** The session and its episode are lost or in an unknown state; `reset` begins another episode. */
export class SessionLost extends OpenEnvError {}

/** The server did not answer in time. */
export class ResponseTimeout extends OpenEnvError {}

/** A step took longer than its `timeoutS`. */
export class StepTimeout extends ResponseTimeout {
  /** The deadline of the step, in seconds. */
  readonly timeoutS: number;
  /** True if the step is still running. Until it ends, other requests fail with `SessionBusy`. */
  readonly isRunning: boolean;
  /** Waits for the answer; present if the step may still be running. */
  late?: () => Promise<StepResult<unknown>>;

  constructor(message: string, timeoutS: number, isRunning: boolean) {
    super(message);
    this.timeoutS = timeoutS;
    this.isRunning = isRunning;
  }
}

/** The peer sent something that the protocol does not allow. */
export class ProtocolError extends OpenEnvError {}

/** The server or its protocol version lacks a feature. */
export class NotSupported extends OpenEnvError {}

/** The server answered a request with an error. */
export class ServerError extends OpenEnvError {
  /** The code, such as `EXECUTION_ERROR`. */
  readonly code: string;
  /** The data of the error message. */
  readonly data: ErrorData;

  constructor(message: string, code: string, data: ErrorData = {}) {
    super([message, ...errorsIn(data).map(line)].join("\n  "));
    this.code = code;
    this.data = data;
  }

  /** The validation errors, field by field; empty if the server sent none. */
  get errors(): readonly FieldError[] {
    return errorsIn(this.data);
  }

  /** The id of the entry in the server's log, if the server withholds the error's text. */
  get incident(): string | undefined {
    const incident = this.data["incident"];
    return typeof incident === "string" ? incident : undefined;
  }
}

function errorsIn({ errors }: { readonly errors?: unknown }): FieldError[] {
  return Array.isArray(errors) ? (errors as FieldError[]) : [];
}

function line({ loc = [], msg }: FieldError): string {
  return `${loc.join(".") || "(value)"}: ${msg}`;
}

/** The server could not read the request. */
export class MalformedRequest extends ServerError {}

/** The request or the action did not fit its model; see `errors`. */
export class ValidationFailed extends ServerError {}

/** The environment raised an exception. */
export class ExecutionFailed extends ServerError {}

/** A tool failed or could not be called. */
export class ToolFailed extends ExecutionFailed {
  readonly toolName: string;
  /** `execution_error`, `invalid_args`, `transport_error`, `tool_not_found` or `timeout`. */
  readonly errorType: string | undefined;

  constructor(message: string, toolName: string, errorType?: string, data: ErrorData = {}) {
    super(message, "EXECUTION_ERROR", data);
    this.toolName = toolName;
    this.errorType = errorType;
  }
}

/** The server has no free slot. */
export class CapacityError extends ServerError {}

/** The key exceeds a rate limit. The server has done nothing, and the session continues. */
export class RateLimited extends ServerError {
  /** Seconds to wait before the next attempt. */
  get retryAfterS(): number {
    const seconds = this.data["retry_after_s"];
    return typeof seconds === "number" ? seconds : 1;
  }
}

/** The server could not construct the environment. */
export class FactoryFailed extends ServerError {}

/** The session does not exist, or the server could not serve it. */
export class SessionFailed extends ServerError {}

/** An overdue step is still running. */
export class SessionBusy extends ServerError {}

/** A request or an answer is over the size limit. */
export class MessageTooLarge extends ServerError {}

/** The environment or the server lacks a feature. */
export class NotSupportedByServer extends ServerError {}

const BY_CODE: Readonly<Record<string, typeof ServerError>> = {
  INVALID_JSON: MalformedRequest,
  UNKNOWN_TYPE: MalformedRequest,
  VALIDATION_ERROR: ValidationFailed,
  EXECUTION_ERROR: ExecutionFailed,
  CAPACITY_REACHED: CapacityError,
  FACTORY_ERROR: FactoryFailed,
  SESSION_ERROR: SessionFailed,
  SESSION_BUSY: SessionBusy,
  TOO_LARGE: MessageTooLarge,
  NOT_SUPPORTED: NotSupportedByServer,
  RATE_LIMITED: RateLimited,
};

/** The errors of refused handshakes, by status. */
const BY_STATUS: Readonly<Record<number, typeof ConnectError>> = {
  401: AuthenticationError,
  403: PermissionRefused,
};

const CLOSING: ReadonlySet<unknown> = new Set([
  "CAPACITY_REACHED",
  "FACTORY_ERROR",
  "SESSION_ERROR",
]);

/** Return whether an error ends its session. */
export function closes(data: ErrorData): boolean {
  return CLOSING.has(data["code"]);
}

/** Return the error for the `data` of an error message. */
export function errorOf(data: ErrorData): ServerError | StepTimeout {
  const code = typeof data["code"] === "string" ? data["code"] : "UNKNOWN";
  const message = typeof data["message"] === "string" ? data["message"] : "Unknown error";
  if (code === "STEP_TIMEOUT") {
    return new StepTimeout(message, Number(data["timeout_s"]), data["is_running"] === true);
  }
  const known = Object.hasOwn(BY_CODE, code) ? BY_CODE[code] : undefined;
  return new (known ?? ServerError)(message, code, data);
}

/** Return the error for the status and the text of a refused handshake. */
export function refusalOf(status: number, words: string): ConnectError {
  return new (BY_STATUS[status] ?? ConnectError)(words);
}
