"""`privet`: the command line. Commands import what they need when they run: it starts quickly."""

from __future__ import annotations

import sys
from functools import cache
from typing import Annotated, Any

import typer

from privet.cli import (
    account,
    attack,
    audit,
    calibrate,
    compare,
    data,
    demo,
    explain,
    ledger,
    pate,
    plan,
    predict,
    record,
    train,
)
from privet.cli.console import INSTALL_PAPERS
from privet.errors import PrivetError
from privet.plugins import COMMANDS, plugins

app = typer.Typer(
    name="privet",
    help="Train deep models on private data, know what was spent, and attack the promise.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("account")(account.account)
app.command("calibrate")(calibrate.calibrate)
app.command("explain")(explain.explain)
app.add_typer(ledger.app)
app.add_typer(train.app)
app.add_typer(pate.app)
app.command("attack")(attack.attack)
app.command("audit")(audit.audit)
app.command("compare")(compare.compare)
app.add_typer(data.app)
app.command("plan")(plan.plan)
app.command("predict")(predict.predict)
app.command("demo")(demo.demo)
app.command("verify")(record.verify)
app.add_typer(record.app)


def _add_plugins() -> None:
    """Commands of other packages; without the papers, `reproduce` says what to install."""
    points = plugins(COMMANDS)
    for name, point in points.items():
        found = point.load()
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    if "reproduce" not in points:
        app.command("reproduce", context_settings={"ignore_unknown_options": True})(_no_papers)


def _no_papers(
    paper: Annotated[list[str] | None, typer.Argument(help="A paper, and its options.")] = None,
) -> None:
    """Run a paper's experiments (a package of its own: privet-papers)."""
    raise PrivetError(f"privet reproduce needs the papers: {INSTALL_PAPERS}")


_add_plugins()


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"privet {version('privet')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


# typer carries its own copy of click, or uses the installed one: take the classes from typer
_UsageError: Any = typer.BadParameter.__bases__[0]
_ClickException: Any = _UsageError.__bases__[0]


@cache
def _command() -> Any:
    """All commands and their options, made once: a program may run several."""
    return typer.main.get_command(app)


def main(arguments: list[str] | None = None) -> None:
    """Run a command; what goes wrong on purpose is one line on standard error and exit code 2."""
    try:
        code = _command()(args=arguments, prog_name="privet", standalone_mode=False)
    except PrivetError as e:
        code = _say(str(e))
    except _ClickException as e:
        code = _say(_in_one_line(e)) if e.format_message() else 2  # without text: help was shown
    except (typer.Abort, KeyboardInterrupt):
        code = _say("interrupted")
    sys.exit(code if isinstance(code, int) else 0)


def _in_one_line(error: Any) -> str:
    """What typer found wrong with the options, and where to look."""
    context = getattr(error, "ctx", None)
    where = "" if context is None else f"; see {context.command_path} --help"
    return str(error.format_message()).strip().rstrip(".") + where


def _say(message: str) -> int:
    print("error: " + " ".join(message.split()), file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
