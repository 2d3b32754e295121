"""Faults to plant into the core: each is a small edit that breaks a promise.

`run.py` beside this file plants them one by one and checks that a test of ``make test`` fails. Add
a fault whenever a defect has reached a user: what let it pass once lets the next one pass too.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FAULTS", "Fault"]


class Fault(NamedTuple):
    """An edit of a module, and a test that must notice it.

    Attributes:
        name: What is wrong afterwards.
        file: The module, relative to ``src/openenv``.
        before: A piece of its text that occurs once.
        after: What stands there instead.
        caught_by: Tests, as node ids of pytest, of which at least one must fail. Each is in the
            selection of ``make test``.
    """

    name: str
    file: str
    before: str
    after: str
    caught_by: tuple[str, ...]


RESUME = "tests/faults/test_resume.py"
DEADLINES = "tests/faults/test_deadlines.py"
QUEUE = "tests/faults/test_queue.py"
LIMITS = "tests/faults/test_limits.py"
AUTH = "tests/server/test_auth.py"
MANAGER = "tests/execution/test_manager.py"
BEHAVIOUR = "tests/behaviour/test_behaviour.py"
LOSS = "tests/client/test_loss.py"
GIVEN_UP = "tests/faults/test_given_up"
SHARING = "tests/client/test_sharing.py"
PROMISE = "tests/faults/test_promise.py"

FAULTS = (
    # ------------------------------------------------------------ resuming
    Fault(
        "a resend leaves out the first frame that the peer lacks",
        "protocol/v1/connection.py",
        "        return list(self._kept)\n",
        "        return list(self._kept[1:])\n",
        (f"{RESUME}::test_an_answer_made_while_nobody_was_there_is_not_lost",),
    ),
    Fault(
        "an acknowledgement drops one frame too many",
        "protocol/v1/connection.py",
        "            del kept[:fresh]\n",
        "            del kept[: fresh + 1]\n",
        ("tests/protocol/test_ledger.py",),
    ),
    Fault(
        "a server that resumes claims a frame that never came",
        "execution/connections/v1/connection.py",
        'count = self._codec.encode_data({"received": self._buffer.received})',
        'count = self._codec.encode_data({"received": self._buffer.received + 1})',
        (f"{RESUME}::test_a_step_whose_request_was_lost_is_taken_when_it_comes_again",),
    ),
    Fault(
        "a connection is resumed without its token",
        "execution/connections/v1/connection.py",
        "        return is_token and principal is self._principal\n",
        "        return principal is self._principal\n",
        (f"{RESUME}::test_nobody_resumes_what_is_not_theirs",),
    ),
    Fault(
        "a connection is resumed under another key",
        "execution/connections/v1/connection.py",
        "        return is_token and principal is self._principal\n",
        "        return is_token\n",
        (AUTH,),
    ),
    Fault(
        "a client does not try to resume",
        "client/connection.py",
        "        if not (is_there and protocol.is_resumable and error.code in ACCIDENTS):\n",
        "        if True:\n",
        (f"{RESUME}::test_an_episode_goes_on_where_it_was",),
    ),
    # ------------------------------------------------------------ losses
    Fault(
        "a lost episode is followed by a new one in silence",
        "client/connection.py",
        "        self.lost = why\n",
        "        self.lost = None\n",
        (f"{LOSS}::test_a_drop_in_mid_episode_is_an_error_and_not_a_fresh_environment",),
    ),
    Fault(
        "any request of the same type counts as asking again",
        "client/connection.py",
        "                and protocol.sent_content(sent.frame, sent.request) == content\n",
        "",
        (BEHAVIOUR, RESUME, "tests/client"),
    ),
    Fault(
        "a step after an unanswered step is sent",
        "client/connection.py",
        '        if request.type == "step" and unanswered:\n',
        "        if False:\n",
        (BEHAVIOUR, "tests/client/test_loss.py"),
    ),
    # ------------------------------------------------------------ callers that give up
    Fault(
        "an answer that came as its caller stopped waiting is dropped",
        "client/background.py",
        "            self._held.give_back()\n",
        "            pass\n",
        (f"{GIVEN_UP}.py::test_a_call_may_be_cancelled_at_any_moment", PROMISE),
    ),
    Fault(
        "an interrupt in the frames above a call drops its answer",
        "client/_calls.py",
        "            self.drop(error)\n            raise\n\n    def _wait",
        "            raise\n\n    def _wait",
        (f"{GIVEN_UP}.py::test_a_call_may_be_interrupted_at_any_moment",),
    ),
    Fault(
        "a reading in between drops a late answer",
        "client/connection.py",
        "                    sent.outcome = reply  # a late answer\n",
        "                    pass\n",
        (f"{GIVEN_UP}.py::test_a_reading_in_between_keeps_the_late_answer", PROMISE),
    ),
    Fault(
        "a step that is asked again is scored twice",
        "client/client.py",
        "            if self._session.is_repeated:\n",
        "            if False:\n",
        (f"{GIVEN_UP}.py",),
    ),
    Fault(
        "a batch whose caller was interrupted is dropped",
        "client/session_group.py",
        "                sent.give_back()\n",
        "                pass\n",
        (f"{GIVEN_UP}_batches.py::test_a_batch_may_be_interrupted_at_any_moment", PROMISE),
    ),
    Fault(
        "a connection that broke before its first request is not kept",
        "execution/connections/v1/connection.py",
        "        has_something = is_unheard or (self._is_acknowledging and self._slots)\n",
        "        has_something = self._is_acknowledging and self._slots\n",
        (f"{GIVEN_UP}_connections.py", PROMISE),
    ),
    Fault(
        "a session whose worker died keeps its number",
        "execution/connections/v1/connection.py",
        "        if slot is not None and slot.session is session:\n",
        "        if False:\n",
        ("tests/server/test_workers.py", PROMISE),
    ),
    Fault(
        "a reset that waits as a step's time runs out is refused",
        "execution/session.py",
        "                    self._serve_though_overdue(waiting)\n",
        "                    waiting.reply(None, self._busy())\n",
        (f"{DEADLINES}::test_a_reset_that_waited_as_the_time_ran_out_begins_anew",),
    ),
    Fault(
        "a coroutine that was given up ends in the session that left it",
        "execution/session.py",
        "        call.owner = left\n",
        "",
        ("tests/faults/test_left_behind.py", PROMISE),
    ),
    Fault(
        "a connect that is cancelled leaves its socket open",
        "client/connection.py",
        "            transport.abort()\n            await endpoint.leave()\n",
        "            await endpoint.leave()\n",
        (f"{GIVEN_UP}_connections.py", PROMISE),
    ),
    Fault(
        "an overdue call's thread gets new sessions",
        "execution/executors.py",
        "            self._held.setdefault(executor.worker, time.monotonic())\n",
        "            pass\n",
        ("tests/execution/test_held_threads.py",),
    ),
    Fault(
        "a fork server that died while it started is never tried again",
        "execution/process.py",
        "FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 30.0\n",
        "FIRST_PAUSE_S, LONGEST_PAUSE_S = 3600.0, 3600.0\n",
        ("tests/faults/test_workers_come_back.py",),
    ),
    # ------------------------------------------------------------ one call at a time, cancellation
    Fault(
        "two calls run at once in one environment",
        "execution/session.py",
        "        if self._running is None and phase is _OPEN:\n",
        "        if phase is _OPEN:\n",
        ("tests/execution", BEHAVIOUR),
    ),
    Fault(
        "a cancelled call goes on",
        "execution/session.py",
        "        self.is_cancelled = True\n        if self.task is not None:\n",
        "        self.is_cancelled = True\n        if False:\n",
        (f"{DEADLINES}::test_a_coroutine_is_cancelled_and_the_episode_goes_on",),
    ),
    Fault(
        "a waiter that gives up keeps the slot that it was just given",
        "execution/manager.py",
        "            if place.granted.done() and place.granted.exception() is None:\n"
        "                self.active_sessions -= 1\n",
        "            if False:\n                pass\n",
        (MANAGER, QUEUE),
    ),
    # ------------------------------------------------------------ deadlines
    Fault(
        "the server does not keep the deadline of a step",
        "execution/session.py",
        "call_later(timeout_s, self._expire, call)",
        "call_later(60 * timeout_s, self._expire, call)",
        (DEADLINES, "tests/server/test_http.py", MANAGER),
    ),
    Fault(
        "a step whose time is over before its turn runs all the same",
        "execution/session.py",
        "            self._waiting.remove(call)\n            call.reply",
        "            call.reply",
        (f"{DEADLINES}::test_a_step_that_waited_too_long_is_not_begun",),
    ),
    # ------------------------------------------------------------ slots and the queue
    Fault(
        "a client of many sessions is served before all others",
        "execution/queue.py",
        "        self._lines.move_to_end(client)\n",
        "",
        (f"{QUEUE}::test_a_client_of_many_does_not_make_others_wait_for_all_of_them",),
    ),
    Fault(
        "the server's limit on waiting is ignored",
        "execution/manager.py",
        "        timeout_s = min(patience.timeout_s, self.limits.max_queue_s)\n",
        "        timeout_s = patience.timeout_s\n",
        (QUEUE, MANAGER),
    ),
    Fault(
        "a throwaway session gives back a slot that it never took",
        "execution/manager.py",
        "            self.active_sessions -= not session.is_throwaway\n",
        "            self.active_sessions -= 1\n",
        (MANAGER, "tests/server/test_http.py"),
    ),
    Fault(
        "a session with a live socket is closed as idle",
        "execution/manager.py",
        "            and not session.attachments\n",
        "",
        (MANAGER,),
    ),
    Fault(
        "a session whose step runs is closed as idle",
        "execution/manager.py",
        "            and not session.is_busy\n            and now",
        "            and now",
        (f"{MANAGER}::test_a_running_step_is_never_reaped",),
    ),
    # ------------------------------------------------------------ keys, origins, secrets
    Fault(
        "a session is found by another key than its own",
        "execution/manager.py",
        "        if principal is not None and not self.is_of(session_id, principal):\n",
        "        if False:\n",
        (f"{AUTH}::test_a_session_is_there_for_the_key_that_opened_it_only",),
    ),
    Fault(
        "a role reaches every route",
        "server/auth.py",
        "    if not may_reach(principal.role, path):\n",
        "    if False:\n",
        (f"{AUTH}::test_a_key_reaches_what_its_role_may_and_nothing_else",),
    ),
    Fault(
        "an unknown key is let in",
        "server/auth.py",
        'raise NotAuthenticatedError("this server does not know the key that was sent")',
        "return None",
        (f"{AUTH}::test_nothing_is_reached_without_a_key",),
    ),
    Fault(
        "the rate limit of a key is not kept",
        "execution/principal.py",
        "        if wait_s > 0:\n",
        "        if wait_s > 1e9:\n",
        (AUTH,),
    ),
    Fault(
        "the key of an agent outlives its session",
        "execution/principal.py",
        "            self._principals.pop(digest, None)\n",
        "            pass\n",
        (AUTH, "tests/server/test_agents.py"),
    ),
    Fault(
        "an exception's text is sent without debug",
        "_internal/incidents.py",
        "    if debug:\n        return incident.text\n",
        "    if True:\n        return incident.text\n",
        ("tests/server/test_incidents.py",),
    ),
    Fault(
        "a registered secret is not hidden",
        "_internal/redaction.py",
        "        if written in text:\n",
        "        if False:\n",
        ("tests/server/test_incidents.py",),
    ),
    # ------------------------------------------------------------ bounds
    Fault(
        "an answer over the limit is sent",
        "execution/connections/v1/connection.py",
        "        elif len(result) > connection._largest:\n",
        "        elif False:\n",
        (f"{LIMITS}::test_an_observation_over_the_limit_is_refused_with_the_sizes",),
    ),
    Fault(
        "a client that does not read is never cut off",
        "execution/slow_readers.py",
        "        self._cut()\n",
        "",
        (f"{LIMITS}::test_a_client_that_does_not_read_is_cut_off",),
    ),
    # ------------------------------------------------------------ what an answer says
    Fault(
        "an argument that the environment does not take is dropped in silence",
        "execution/runner.py",
        "        self._shown = transition = normalise(value, method.name, ignored)\n",
        "        self._shown = transition = normalise(value, method.name, ())\n",
        (BEHAVIOUR,),
    ),
    Fault(
        "an unscored step counts as nothing instead of making the episode unscored",
        "reward.py",
        "            return None if any(unscored) or not scored else math.fsum(scored)\n",
        "            return None if not scored else math.fsum(scored)\n",
        ("tests/test_reward.py",),
    ),
    Fault(
        "version 0 does not tell a truncation from an end",
        "client/codec.py",
        "            result.truncated = True\n",
        "            pass\n",
        (BEHAVIOUR,),
    ),
    Fault(
        "a late answer is taken for that of the next call",
        "client/connection.py",
        "                sent = session.sent.get(request_id)  # type: ignore[arg-type]\n",
        "                sent = next(iter(session.sent.values()), None)\n",
        (f"{BEHAVIOUR}::test_a_late_answer_is_never_taken_for_another",),
    ),
    # ------------------------------------------------------------ workers, recordings, metrics
    Fault(
        "a recording does not say how many events are missing",
        "execution/recording.py",
        "            data = gap(self.missing) + data\n",
        "            pass\n",
        ("tests/execution/test_recording.py",),
    ),
    Fault(
        "a frame from a worker loses its first byte",
        "execution/link.py",
        "bytes(memoryview(buffer)[body:at])",
        "bytes(memoryview(buffer)[body + 1 : at])",
        ("tests/execution/test_link.py",),
    ),
    Fault(
        "errors are not counted",
        "execution/connections/v1/connection.py",
        '        self._counters.failed(error)\n        self._send(("error", request.session',
        '        self._send(("error", request.session',
        ("tests/server/test_metrics.py",),
    ),
    Fault(
        "a session that is replaced leaves its old environment open",
        "execution/manager.py",
        "        self.active_sessions += 1\n        self.begin_to_close(session)\n"
        "        return True\n",
        "        self.active_sessions += 1\n        return True\n",
        (f"{DEADLINES}::test_a_reset_gives_up_an_environment_that_does_not_come_back",),
    ),
    # ------------------------------------------------------------ shared connections
    Fault(
        "clients with different keys share a connection",
        "client/_sharing.py",
        "        options.api_key or key_for(url),\n",
        "",
        (f"{SHARING}::test_the_key_of_the_environment_is_told_apart",),
    ),
    Fault(
        "a client that is closed does not tell the server while others share its connection",
        "client/connection.py",
        '            self._post(Request("close", data, session=session.number))\n',
        "",
        (f"{SHARING}::test_a_client_that_is_closed_leaves_the_others",),
    ),
    Fault(
        "a connection is closed with the first of its clients",
        "client/connection.py",
        "        if self.is_closed or (len(self.sessions) == 1 and not self._closings):\n",
        "        if True:\n",
        (f"{SHARING}::test_a_client_that_is_closed_leaves_the_others",),
    ),
    Fault(
        "an answer to an earlier question is taken for one to a later question",
        "client/connection.py",
        "sent.request.type not in READINGS or sent.request.id == self.latest\n",
        "True\n",
        (f"{SHARING}::test_an_answer_to_an_earlier_question_is_not_taken_for_a_later_one",),
    ),
    Fault(
        "requests of a hanging session count against the others",
        "execution/connections/v1/connection.py",
        "slot.unanswered >= UNANSWERED_A_SESSION and self._further >= UNANSWERED\n",
        "self._unanswered >= UNANSWERED\n",
        (f"{SHARING}::test_environments_that_hang_leave_the_others_alone",),
    ),
    Fault(
        "of a frame with an unreadable request all are refused",
        "execution/connections/v1/connection.py",
        "        if 1 < len(parts) <= READ_ONE_BY_ONE:\n",
        "        if False:\n",
        (f"{SHARING}::test_what_the_server_cannot_read_is_refused_alone",),
    ),
    Fault(
        "threads that wait behind a slow one are not woken",
        "execution/threads.py",
        "                        self._waiting.popleft().wake()\n",
        "                        self._waiting.popleft()\n",
        (
            "tests/execution/test_threads.py::"
            "test_the_loop_gives_up_waiting_for_a_batch_that_takes_long",
        ),
    ),
)
