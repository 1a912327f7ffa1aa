#compdef a-ware
# zsh completion of a-ware. To have it in every shell, put into ~/.zshrc, after compinit: eval "$(a-ware completion zsh)"
_a_ware() {
	local curcontext=$curcontext state line
	local -a commands
	typeset -A opt_args
	_arguments -s -S -C \
		'--help[Show context-sensitive help.]' \
		'-h[Show context-sensitive help.]' \
		'--version[Print the version.]' \
		'1:command:->command' \
		'*:::argument:->argument'
	case $state in
	command)
		commands=(
			'run:Do\: it.'
			'read:Read files.'
			'completion:Print a script.'
		)
		_describe -t commands command commands
		;;
	argument)
		words=($line[1] "${words[@]}")
		((CURRENT += 1))
		curcontext="${curcontext%:*:*}:a-ware-$line[1]:"
		case $line[1] in
		run)
			_arguments -s -S \
				'--help[Show context-sensitive help.]' \
				'-h[Show context-sensitive help.]' \
				'--version[Print the version.]' \
				'--config=[YAML file with values for flags, by their names; flags and the environment win over it.]:FILE:_files' \
				'--preset=[Defaults\: l40s, h100, tiny (an engine on a CPU), demo.]:NAME:(l40s h100 tiny demo)' \
				'--mode=[How.]:mode:(quick slow)' \
				'--language=[It'\''s \\ a \[closed\] set\: two words.]:language:(hindi english)' \
				'--arrivals=[A kind or a file.]:arrivals:{_alternative "words\:word\:(poisson constant)" "files\:file\:_files"}' \
				'--out=[A folder.]:out:_files -/' \
				'--log=[A file by its type.]:log:_files' \
				'--picture=[A file by what stands for it.]:PNG:_files' \
				'-o+[A file by what stands for it.]:PNG:_files' \
				'--count=[A number.]:count:' \
				'*--header=[May be repeated.]:header:' \
				'--fast[A switch with two sides.]' \
				'--no-fast[A switch with two sides.]' \
				'--quiet[A switch with one.]' \
				'-q[A switch with one.]'
			;;
		read)
			_arguments -s -S \
				'--help[Show context-sensitive help.]' \
				'-h[Show context-sensitive help.]' \
				'--version[Print the version.]' \
				'*:file:_files'
			;;
		completion)
			_arguments -s -S \
				'--help[Show context-sensitive help.]' \
				'-h[Show context-sensitive help.]' \
				'--version[Print the version.]' \
				'1:shell:(bash zsh fish)'
			;;
		esac
		;;
	esac
}
if [[ $funcstack[1] == _a_ware ]]; then
	_a_ware "$@"
else
	compdef _a_ware a-ware
fi
