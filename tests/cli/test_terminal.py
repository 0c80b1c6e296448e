"""The terminal paths: the live view, questions, Ctrl-C, two terminals on one thread, and the conversation."""

from __future__ import annotations

QUESTION = "What time is it in Beijing? And list the files"


def test_a_run_shows_its_nodes_asks_and_goes_on(terminal):
    run = terminal("run", "demo_react", QUESTION)
    run.sees(r"✓ reason\s+\d+ ms")
    run.sees(r"⚙ city_datetime →")
    run.sees(r"Run bash\?")
    run.sees(r"leave open: ")
    run.enters("")  # Enter alone approves nothing
    run.sees(r"leave open: ")
    run.enters("a")
    run.sees(r"This is what `ls` gave")
    run.sees(r"completed · 5 nodes · 3 model calls · 2 tool calls")
    assert run.ends() == 0


def test_arguments_can_be_edited(terminal, cli):
    run = terminal("run", "demo_react", "list the files", "--thread", "t1")
    run.sees("leave open: ")
    run.enters("e")
    run.sees(r"command \[ls\]: ")
    run.enters("pwd")
    run.sees("completed")
    assert run.ends() == 0
    assert '\\"command\\":\\"pwd\\"' in cli("threads", "state", "t1", "messages").out


def test_a_rejection_needs_a_reason_that_the_model_hears(terminal, cli):
    run = terminal("run", "demo_react", "list the files", "--thread", "t1")
    run.sees("leave open: ")
    run.enters("r")
    run.sees("why: ")
    run.enters("too early in the day")
    assert run.ends() == 0
    assert "too early in the day" in cli("threads", "state", "t1", "messages").out


def test_a_question_can_be_left_open(terminal, cli):
    run = terminal("run", "demo_react", "list the files")
    run.sees("leave open: ")
    run.enters("l")
    run.sees("graphflow inbox answer")
    assert run.ends() == 4
    assert len(cli("inbox", "--json").json) == 1


def test_an_ask_is_asked_field_by_field(terminal):
    run = terminal("run", "demo_review", "graphs")
    run.sees(r"Publish this text\?")
    run.sees(r"decision \(approve/revise/reject\): ")
    run.enters("perhaps")
    run.sees(r"decision must be approve/revise/reject")
    run.enters("approve")
    run.sees(r"note \(string, optional\): ")
    run.enters("")
    run.sees("completed")
    assert run.ends() == 0


def test_ctrl_c_at_a_question_leaves_it_open(terminal, cli):
    run = terminal("run", "demo_react", "list the files", "--thread", "t1")
    run.sees("leave open: ")
    run.presses_ctrl_c()
    run.sees("left open; `graphflow inbox list`")
    assert run.ends() == 130
    assert "Traceback" not in run.text
    assert len(cli("inbox", "--json").json) == 1


def test_one_terminal_asks_and_another_answers(terminal, cli):
    asking = terminal("run", "demo_react", "list the files", "--thread", "t1")
    asking.sees("leave open: ")
    waiting = cli("inbox", "--json").json[0]
    answered = cli("inbox", "answer", waiting["interruptId"], "--approve")
    assert answered.code == 0 and "This is what `ls` gave" in answered.out
    asking.sees("answered elsewhere")
    asking.sees("This is what `ls` gave")
    assert asking.ends() == 0
    assert cli("inbox", "answer", waiting["interruptId"], "--approve").code == 2


def test_no_color_is_honoured(terminal, environment):
    environment["NO_COLOR"] = "1"
    run = terminal("run", "demo_plain", "hello")
    run.sees("completed")
    run.ends()
    assert b"\x1b[3" not in run._raw


def test_a_conversation_keeps_one_thread_and_can_go_back(terminal, cli):
    chat = terminal("chat", "demo_plain")
    chat.sees("/help")
    chat.sees("›")
    chat.enters("hello")
    chat.sees("completed")
    chat.sees("›")
    chat.enters("tell me more")
    chat.sees(r"You said: .tell me more")
    chat.sees("completed")
    chat.sees("›")
    chat.enters("/rewind 1")
    chat.sees("back at step")
    chat.sees("›")
    chat.enters("/state")
    chat.sees("Hello! I am the scripted model")
    chat.sees("›")
    chat.enters("/quit")
    assert chat.ends() == 0
    thread = cli("threads", "list", "--json").json[0]["threadId"]
    assert len(cli("threads", "state", thread, "messages").json) == 2


def test_a_conversation_asks_inline_and_can_branch_off(terminal, cli):
    chat = terminal("chat", "demo_react")
    chat.sees("›")
    chat.enters("list the files")
    chat.sees("leave open: ")
    chat.enters("a")
    chat.sees("completed")
    chat.sees("›")
    for command, shown in (
        ("/graph", "✓2  reason"),
        ("/tools", "city_datetime"),
        ("/model", "scripted"),
        ("/nonsense", "/rewind"),
        ("/save /nowhere/x.jsonl", "cannot be written"),
    ):
        chat.enters(command)
        chat.sees(shown)
        chat.sees("›")
    chat.enters("/fork")
    chat.sees("now on thread")
    chat.sees("›")
    chat.enters("/save copy.jsonl")
    chat.sees("saved to copy.jsonl")
    chat.sees("›")
    chat.enters("/quit")
    assert chat.ends() == 0
    assert len(cli("threads", "list", "--json").json) == 2
    assert cli("threads", "import", "copy.jsonl", "--id", "copy").code == 0


def test_a_question_that_was_left_open_is_asked_again_by_resume(terminal):
    chat = terminal("chat", "demo_react")
    chat.sees("›")
    chat.enters("list the files")
    chat.sees("leave open: ")
    chat.enters("l")
    chat.sees("graphflow inbox answer")
    chat.sees("›")
    chat.enters("/")
    chat.sees("unknown command /; commands are /rewind")
    chat.sees("›")
    chat.enters("/resume")
    chat.sees(r"Run bash\?")
    chat.sees("leave open: ")
    chat.enters("a")
    chat.sees("This is what `ls` gave")
    chat.sees("›")
    chat.enters("/quit")
    assert chat.ends() == 0


def test_ctrl_c_stops_a_turn_and_twice_leaves(terminal, held_model):
    held_model.hold(request=1, delta=8)
    chat = terminal("chat", "demo_plain")
    chat.sees("›")
    chat.enters("hello")
    chat.sees("Hello")
    chat.presses_ctrl_c()
    chat.sees("stopped")
    chat.sees("›")
    chat.presses_ctrl_c()
    chat.sees("again to quit")
    chat.presses_ctrl_c()
    assert chat.ends() == 0
    assert "Traceback" not in chat.text


def test_chat_needs_a_terminal(cli):
    done = cli("chat", "demo_plain")
    assert done.code == 2 and "needs a terminal" in done.err


def test_an_answer_in_another_process_shows_the_call_by_its_name(terminal, cli):
    assert cli("run", "demo_react", QUESTION, "--thread", "t1").code == 4
    asked = cli("inbox", "--json").json[0]["interruptId"]
    answer = terminal("inbox", "answer", asked, "--approve")
    answer.sees("▶ approve bash")
    answer.sees("⚙ bash →")
    assert answer.ends() == 0 and "⚙ tool" not in answer.text
