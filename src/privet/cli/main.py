"""`privet`: the command line. Commands import what they need when they run: it starts quickly."""

from __future__ import annotations

import sys
from typing import Annotated

import click
import typer

from privet.cli import account, calibrate, demo, ledger
from privet.errors import PrivetError

app = typer.Typer(
    name="privet",
    help="Train deep models on private data, know what was spent, and attack the promise.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("account")(account.account)
app.command("calibrate")(calibrate.calibrate)
app.add_typer(ledger.app)
app.command("demo")(demo.demo)


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


def main(arguments: list[str] | None = None) -> None:
    """Run a command; what goes wrong on purpose is one line on standard error and exit code 2."""
    try:
        code = app(args=arguments, prog_name="privet", standalone_mode=False)
    except PrivetError as e:
        code = _say(str(e))
    except click.exceptions.NoArgsIsHelpError as e:
        e.show()
        code = 2
    except click.ClickException as e:
        context = getattr(e, "ctx", None)
        where = f"; see {context.command_path} --help" if context is not None else ""
        code = _say(e.format_message().rstrip(".") + where)
    except (click.exceptions.Abort, KeyboardInterrupt):
        code = _say("interrupted") and 130
    sys.exit(code if isinstance(code, int) else 0)


def _say(message: str) -> int:
    print("error: " + " ".join(message.split()), file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
