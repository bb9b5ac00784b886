"""Completion of settings on the shell's Tab: Hydra's engine behind Typer's callback."""

from __future__ import annotations

from experiments.config.groups import conf_for_hydra
from experiments.config.primary import PRETRAINING, Primary

# Typer's own bash script stops at "=", which is where an override begins to be interesting
BASH = """\
COMP_WORDBREAKS=${COMP_WORDBREAKS//=}
_attn_completion() {
    local IFS=$'\\n'
    COMPREPLY=( $( env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD _ATTN_COMPLETE=complete_bash $1 ) )
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} != *[=./] ]] && COMPREPLY[0]+=' '
    return 0
}
complete -o nospace -o default -F _attn_completion attn"""

# Typer's own zsh script puts a space after every word, also after "="
ZSH = """\
#compdef attn
_attn_completion() {
    local -a found
    found=( ${(f)"$( env COMP_WORDS="${words[1,$CURRENT]}" COMP_CWORD=$(( CURRENT - 1 )) \\
        _ATTN_COMPLETE=complete_bash $words[1] )"} )
    (( $#found )) || { _files; return }
    compadd -S '' -- ${(M)found:#*[=./]}
    compadd -- ${found:#*[=./]}
}
compdef _attn_completion attn"""

FISH = """\
complete --command attn --no-files --arguments '(
    env _ATTN_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args \\
        _TYPER_COMPLETE_ARGS=(commandline --cut-at-cursor --current-process | string collect) attn
)'"""


def script(shell: str) -> str:
    """The script that a shell evaluates: `eval "$(attn completion bash)"`, or `attn completion fish | source`."""
    return {"bash": BASH, "zsh": ZSH, "fish": FISH}[shell]


def complete(arguments: list[str], incomplete: str, primary: Primary = PRETRAINING) -> list[str]:
    """The possible completions of `incomplete` after `arguments`: keys, groups and their options. Empty if Hydra finds
    none.
    """
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra._internal.utils import create_config_search_path
    from hydra.errors import HydraException
    from hydra.plugins.completion_plugin import DefaultCompletionPlugin
    from omegaconf.errors import OmegaConfBaseException

    loader = ConfigLoaderImpl(config_search_path=create_config_search_path(conf_for_hydra()))
    overrides = [argument for argument in arguments if "=" in argument and not argument.startswith("-")]
    line = " ".join([*overrides, incomplete])
    try:
        return DefaultCompletionPlugin(loader)._query(primary.name, line)
    except (HydraException, OmegaConfBaseException):
        return []
