# bash completion of a-ware. To have it in every shell, put into ~/.bashrc: eval "$(a-ware completion bash)"
_a_ware() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command= words= files= lead= word i
	COMPREPLY=()
	case $cur in
	=) cur= ;;
	--*=*) prev=${cur%%=*} lead=${cur%%=*}= cur=${cur#*=} ;;
	*) if [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD - 2]}; fi ;;
	esac
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		-*) ;;
		run | read | completion) command=${COMP_WORDS[i]} && break ;;
		*) break ;;
		esac
	done
	case $command/$prev in
	run/--config) files=file ;;
	run/--preset) words='l40s h100 tiny demo' ;;
	run/--mode) words='quick slow' ;;
	run/--language) words='hindi english' ;;
	run/--arrivals) words='poisson constant' files=file ;;
	run/--out) files=directory ;;
	run/--log) files=file ;;
	run/--picture | run/-o) files=file ;;
	run/--count | run/--header) return ;;
	*)
		case $command/$cur in
		/-*) words='--help -h --version' ;;
		/*) words='run read completion' ;;
		run/*) words='--help -h --version --config --preset --mode --language --arrivals --out --log --picture -o --count --header --fast --no-fast --quiet -q' ;;
		read/-*) words='--help -h --version' ;;
		read/*) files=file ;;
		completion/-*) words='--help -h --version' ;;
		completion/*) words='bash zsh fish' ;;
		esac
		;;
	esac
	while IFS= read -r word; do
		COMPREPLY+=("$lead$word")
	done < <(
		compgen -W "$words" -- "$cur"
		[[ -n $files ]] && compgen -A "$files" -- "$cur"
	)
	if [[ -n $files ]]; then compopt -o filenames -o default 2>/dev/null || true; fi
}
complete -F _a_ware a-ware
