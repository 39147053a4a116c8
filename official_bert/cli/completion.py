"""Scripts that complete the commands and flags of `official-bert` in a shell.

They contain all names, so that a completion starts no Python.
"""

from official_bert import catalog
from official_bert.io.errors import InputError
from official_bert.options.fields import flag_fields, value_type

PROGRAM = "official-bert"

_BASH = """\
_official_bert() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} words
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{commands}"
    else
        case ${{COMP_WORDS[1]//-/_}} in
{cases}
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    # The value follows the equals sign without a blank.
    [[ ${{COMPREPLY[0]}} == *= ]] && compopt -o nospace 2>/dev/null
    return 0
}}
complete -o default -F _official_bert {program}
"""
_BASH_IN_ZSH = "autoload -U +X compinit bashcompinit && compinit && bashcompinit\n"


def completion_script(shell: str) -> str:
    """Return the script for a shell, which a user's start-up file evaluates.

    Args:
        shell: bash, zsh or fish.

    Raises:
        InputError: the shell is another one.
    """
    scripts = {"bash": _bash, "zsh": lambda: _BASH_IN_ZSH + _bash(), "fish": _fish}
    if shell not in scripts:
        raise InputError(f"--completion={shell}: must be one of {', '.join(scripts)}")
    return scripts[shell]()


def _bash() -> str:
    cases = []
    for name in catalog.commands():
        flags = " ".join(_flags(name))
        cases.append(f'            {name}) words="{flags}" ;;')
    return _BASH.format(
        program=PROGRAM, commands=" ".join(catalog.commands()), cases="\n".join(cases)
    )


def _flags(command: str) -> list[str]:
    """Returns the flags of a command as a user types them, up to their values."""
    words = []
    for field in flag_fields(catalog.options_class(command)):
        if value_type(field) is bool:
            words += [f"--{field.name}", f"--no{field.name}"]
        else:
            words.append(f"--{field.name}=")
    return [*words, "--help", "--helpfull"]


def _fish() -> str:
    lines = []
    for name, command in catalog.commands().items():
        summary = command.summary.replace("'", "\\'")
        lines.append(f"complete -c {PROGRAM} -f -n __fish_use_subcommand -a {name} -d '{summary}'")
        seen = f"-n '__fish_seen_subcommand_from {name}'"
        for flag in _flags(name):
            long_name = flag.strip("-=")
            # A flag with a value completes the names of files.
            value = " -r -F" if flag.endswith("=") else ""
            lines.append(f"complete -c {PROGRAM} {seen} -l {long_name}{value}")
    return "\n".join([*lines, ""])
