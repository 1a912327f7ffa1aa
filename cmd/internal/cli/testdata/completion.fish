# fish completion of a-ware. To have it in every shell: a-ware completion fish > ~/.config/fish/completions/a-ware.fish
function __a_ware_at --description 'whether the command line of a-ware has come to this command'
	set -l words (commandline -opc)
	set -e words[1]
	set -l command
	for word in $words
		if not string match -q -- '-*' $word
			set command $word
			break
		end
	end
	test "$command" = "$argv[1]"
end
complete -c a-ware -f
complete -c a-ware -n '__a_ware_at ""' -l help -s h -d 'Show context-sensitive help.'
complete -c a-ware -n '__a_ware_at ""' -l version -d 'Print the version.'
complete -c a-ware -n '__a_ware_at ""' -a run -d 'Do: it.'
complete -c a-ware -n '__a_ware_at ""' -a read -d 'Read files.'
complete -c a-ware -n '__a_ware_at ""' -a completion -d 'Print a script.'
complete -c a-ware -n '__a_ware_at run' -l help -s h -d 'Show context-sensitive help.'
complete -c a-ware -n '__a_ware_at run' -l version -d 'Print the version.'
complete -c a-ware -n '__a_ware_at run' -l config -r -F -d 'YAML file with values for flags, by their names; flags and the environment win over it.'
complete -c a-ware -n '__a_ware_at run' -l preset -x -a 'l40s h100 tiny demo' -d 'Defaults: l40s, h100, tiny (an engine on a CPU), demo.'
complete -c a-ware -n '__a_ware_at run' -l mode -x -a 'quick slow' -d 'How.'
complete -c a-ware -n '__a_ware_at run' -l language -x -a 'hindi english' -d 'It\'s \\ a [closed] set: two words.'
complete -c a-ware -n '__a_ware_at run' -l arrivals -r -F -a 'poisson constant' -d 'A kind or a file.'
complete -c a-ware -n '__a_ware_at run' -l out -x -a '(__fish_complete_directories)' -d 'A folder.'
complete -c a-ware -n '__a_ware_at run' -l log -r -F -d 'A file by its type.'
complete -c a-ware -n '__a_ware_at run' -l picture -s o -r -F -d 'A file by what stands for it.'
complete -c a-ware -n '__a_ware_at run' -l count -x -d 'A number.'
complete -c a-ware -n '__a_ware_at run' -l header -x -d 'May be repeated.'
complete -c a-ware -n '__a_ware_at run' -l fast -d 'A switch with two sides.'
complete -c a-ware -n '__a_ware_at run' -l no-fast -d 'A switch with two sides.'
complete -c a-ware -n '__a_ware_at run' -l quiet -s q -d 'A switch with one.'
complete -c a-ware -n '__a_ware_at read' -l help -s h -d 'Show context-sensitive help.'
complete -c a-ware -n '__a_ware_at read' -l version -d 'Print the version.'
complete -c a-ware -n '__a_ware_at read' -F
complete -c a-ware -n '__a_ware_at completion' -l help -s h -d 'Show context-sensitive help.'
complete -c a-ware -n '__a_ware_at completion' -l version -d 'Print the version.'
complete -c a-ware -n '__a_ware_at completion' -a 'bash zsh fish'
