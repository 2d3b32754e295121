/**
 * A client of OpenEnv environments.
 *
 * @module
 */

export { NDArray, type Elements } from "./arrays.ts";
export {
  EnvClient,
  type CallOptions,
  type Fields,
  type Rendering,
  type StepOptions,
  type StepResult,
  type Tool,
} from "./client.ts";
export { json, type Codec, type Frame } from "./codec.ts";
export type { ConnectOptions } from "./session_group.ts";
export {
  AuthenticationError,
  CapacityError,
  ConnectError,
  ExecutionFailed,
  FactoryFailed,
  MalformedRequest,
  MessageTooLarge,
  NotSupported,
  NotSupportedByServer,
  OpenEnvError,
  PermissionRefused,
  ProtocolError,
  RateLimited,
  ResponseTimeout,
  ServerError,
  SessionBusy,
  SessionFailed,
  SessionLost,
  StepTimeout,
  ToolFailed,
  ValidationFailed,
  type ErrorData,
  type FieldError,
} from "./errors.ts";
export type { Queued } from "./messages.ts";
