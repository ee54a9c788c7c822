"""`penstock login`: who may use a server, and for what."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.command import command
from penstock.model.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(
        app,
        "login",
        panel="Server",
        examples=[
            "penstock login shop --role put --tube 'mail*' --file logins.toml",
            "penstock login shop --grant --role take --tube returns --file logins.toml",
            "penstock login shop --another --file logins.toml",
            "penstock login ops --role admin --tube '*' --file logins.toml",
            "penstock login shop --remove --file logins.toml",
        ],
    )(login)


def login(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of a program or a person.")],
    file: Annotated[str, typer.Option("--file", "-f", metavar="FILE", help="Where logins are; made if absent.")],
    role: Annotated[
        list[str] | None, typer.Option(metavar="ROLE", help="read, put, take or admin, which is all; may be repeated.")
    ] = None,
    tube: Annotated[
        list[str] | None, typer.Option(metavar="TUBE", help="A name, or a pattern such as 'mail*'; may be repeated.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="A new secret for a login that exists; the old ones end.")
    ] = False,
    another: Annotated[
        bool, typer.Option("--another", help="One more secret; the old ones stay until --replace.")
    ] = False,
    grant: Annotated[
        bool, typer.Option("--grant", help="Add the roles on the tubes to what a login may do; its secret stays.")
    ] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Forget the login.")] = False,
) -> None:
    """Make a login for `penstock serve --logins FILE` and print its secret, once.

    The file has hashes alone: nobody can print the secret again. A server reads it when it starts; SIGHUP starts it
    anew without closing it. Clients write penstock://NAME:SECRET@host:port.
    """
    from penstock.server import logins

    if replace + another + grant + remove > 1:
        raise UsageError("--replace, --another, --grant and --remove: give one of them")
    entries = logins.read_entries(file) if os.path.exists(file) else {}
    found = entries.get(logins.check_name(name))
    if found is None and (replace or another or grant or remove):
        raise UsageError(f"{file} has no login {name!r}")
    if found is not None and not (replace or another or grant or remove):
        raise UsageError(f"{file} has a login {name!r}: --replace gives it a new secret, --another one more")
    if found is None and not (role and tube):
        raise UsageError("what may it do? Give --role and --tube, as in --role take --tube mail")
    if grant and not (role and tube):
        raise UsageError("which rights? Give --role and --tube, as in --grant --role read --tube mail")
    if remove and (role or tube):
        raise UsageError(
            f"--remove forgets {name!r} with all its rights; to change them, --replace with --role and --tube"
        )
    rights = (logins.new_right(role or (), tube or ()),) if role or tube else ()
    token = None if grant or remove else logins.new_token()
    if remove:
        del entries[name]
    elif found is None:
        entries[name] = logins.new_entry(name, rights, token)
    elif grant:
        entries[name] = logins.changed(found, (*found.login.rights, *rights), found.secrets)
    else:
        kept = found.secrets if another else ()
        entries[name] = logins.changed(found, rights or found.login.rights, kept, token)
    logins.write_entries(file, entries)
    if output.as_json():
        output.json_line({"login": name, "secret": token, "file": file})
    elif token is not None:
        output.line(token)
