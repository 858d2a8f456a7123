"""The commands of ``manyway`` with their arguments and options, from the program itself."""

from __future__ import annotations

from typing import Any

from rich.text import Text


def command_reference() -> str:
    """Markdown: a heading per command, its description, and a table of its arguments and options."""
    import typer

    from manyway.cli import app
    from manyway.cli.options import WHOLE_HELP, with_formats

    group: Any = typer.main.get_command(app)
    parts = []
    for name, command in group.commands.items():
        if command.hidden:
            continue
        command.name_formats()
        usage = " ".join(_argument(p) for p in command.params if p.param_type_name == "argument")
        about = _text(with_formats(WHOLE_HELP[name]))
        parts.append(f"## manyway {name}\n\n```\nmanyway {name} {usage} [OPTIONS]\n```\n\n{about}\n")
        # also those that --help leaves to --help-all
        rows = [_row(p) for p in command.params if p.name not in ("help", "help_all")]
        if rows:
            parts.append("| argument or option | meaning | default |\n|---|---|---|\n" + "".join(rows))
    return "\n".join(parts)


def _text(text: str | None) -> str:
    """Help without the markup of the terminal."""
    return Text.from_markup(text or "").plain.strip()


def _argument(parameter: Any) -> str:
    return parameter.metavar or parameter.name.upper()


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        name = f"`{_argument(parameter)}`"
    else:
        name = ", ".join(f"`{option}`" for option in [*parameter.opts, *parameter.secondary_opts])
    default = parameter.default
    shown = "" if default in (None, False, (), []) or callable(default) else f"`{default}`"
    meaning = " ".join(_text(parameter.help).split()).replace("|", "\\|")
    return f"| {name} | {meaning} | {shown} |\n"
