import assert from "node:assert/strict";
import { test } from "node:test";
import { CapacityError, RateLimited, ServerError, StepTimeout, errorOf } from "../src/errors.ts";

test("a code is a class", () => {
  const error = errorOf({ code: "CAPACITY_REACHED", message: "full", max_sessions: 2 });
  assert.ok(error instanceof CapacityError && error instanceof ServerError);
  assert.equal(error.name, "CapacityError");
  assert.equal(error.data["max_sessions"], 2);
});

test("a code of a later version is a plain error", () => {
  for (const code of ["LATER", "constructor"]) {
    const error = errorOf({ code, message: "?" });
    assert.equal(error.constructor, ServerError);
  }
});

test("details are properties", () => {
  const limited = errorOf({ code: "RATE_LIMITED", message: "", retry_after_s: 2.5 });
  assert.ok(limited instanceof RateLimited);
  assert.equal(limited.retryAfterS, 2.5);
  const late = errorOf({ code: "STEP_TIMEOUT", message: "", timeout_s: 1, is_running: true });
  assert.ok(late instanceof StepTimeout);
  assert.deepEqual([late.timeoutS, late.isRunning], [1, true]);
});

test("what is wrong with a request is said field by field", () => {
  const errors = [{ type: "missing", loc: ["items", 0, "name"], msg: "Field required" }];
  const error = errorOf({ code: "VALIDATION_ERROR", message: "Invalid message", errors });
  assert.equal(error.message, "Invalid message\n  items.0.name: Field required");
});
