package cli

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Completion is the command that prints a script by which a shell completes the program's command lines. The script is made of
// the grammar: commands, flags with their help texts, the values that a flag can have as far as they are a closed set, and
// files where files are asked for. A tag complete:"" on a field names values that nothing else tells of, separated by commas;
// among them file and dir stand for names of files and folders.
type Completion struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help is what completion --help says beyond its flags.
func (*Completion) Help() string {
	return "The script knows the commands, their flags and what can follow them.\n\nExamples:\n" +
		"  eval \"$(${program} completion bash)\"    # in ~/.bashrc\n" +
		"  eval \"$(${program} completion zsh)\"     # in ~/.zshrc, after compinit\n" +
		"  ${program} completion fish > ~/.config/fish/completions/${program}.fish"
}

// Run prints the script.
func (c *Completion) Run(app *kong.Kong, vars kong.Vars, std Streams) error {
	var b bytes.Buffer
	p := completed(app.Model, vars)
	switch c.Shell {
	case "bash":
		p.bash(&b)
	case "zsh":
		p.zsh(&b)
	case "fish":
		p.fish(&b)
	}
	_, err := b.WriteTo(std.Out)
	return err
}

// A program is what a completion script is made of.
type program struct {
	name     string
	flags    []option // that stand before a command
	commands []command
}

type command struct {
	name, help string
	flags      []option // the program's too
	args       []argument
}

type option struct {
	names []string // as they are typed, the long one first
	help  string
	takes *argument // nil of a switch
	many  bool
}

// An argument is what follows a flag, or a command.
type argument struct {
	name        string
	words       []string // that it can be
	files, dirs bool     // or that
	many        bool
}

// completed reads a grammar of one level of commands.
func completed(app *kong.Application, vars kong.Vars) program {
	p := program{name: app.Name, flags: optionsOf(app.Node, vars)}
	for _, n := range app.Children {
		if n.Hidden {
			continue
		}
		c := command{name: n.Name, help: oneLine(n.Help), flags: slices.Concat(p.flags, optionsOf(n, vars))}
		for _, v := range n.Positional {
			c.args = append(c.args, argumentOf(v, v.Name, vars))
		}
		p.commands = append(p.commands, c)
	}
	return p
}

func optionsOf(n *kong.Node, vars kong.Vars) []option {
	var out []option
	for _, k := range n.Flags {
		if k.Hidden {
			continue
		}
		f := option{names: []string{"--" + k.Name}, help: oneLine(k.Help), many: k.IsSlice()}
		if k.Tag.Negatable != "" {
			f.names = append(f.names, "--no-"+k.Name)
		}
		if k.Short != 0 {
			f.names = append(f.names, "-"+string(k.Short))
		}
		if !k.IsBool() && !k.IsCounter() {
			name := k.PlaceHolder
			if name == "" {
				name = k.Name
			}
			a := argumentOf(k.Value, name, vars)
			f.takes = &a
		}
		out = append(out, f)
	}
	return out
}

var listed = regexp.MustCompile(`\$\{(\w+)\}`)

// argumentOf finds out what a value can be: from its enum or its tag; else from the list that its help text shows by a variable,
// such as the presets'; else from its type and from the name that stands for it in help texts.
func argumentOf(v *kong.Value, name string, vars kong.Vars) argument {
	a := argument{name: name, many: v.IsSlice()}
	_, config := v.Target.Interface().(kong.ConfigFlag)
	switch known, list := v.Tag.Get("complete"), listed.FindStringSubmatch(v.OrigHelp); {
	case v.Enum != "":
		a.words = v.EnumSlice()
	case known != "":
		a.words = strings.Split(known, ",")
		a.files, a.dirs = slices.Contains(a.words, "file"), slices.Contains(a.words, "dir")
		a.words = slices.DeleteFunc(a.words, func(w string) bool { return w == "file" || w == "dir" })
	case list != nil && vars[list[1]] != "":
		for _, entry := range strings.Split(vars[list[1]], ", ") {
			word, _, _ := strings.Cut(entry, " ") // what follows explains it
			a.words = append(a.words, word)
		}
	case v.Tag.Type == "existingdir":
		a.dirs = true
	case config, slices.Contains([]string{"path", "existingfile", "filecontent"}, v.Tag.Type), slices.Contains([]string{"FILE", "LOG", "PNG", "file"}, name):
		a.files = true
	}
	return a
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// function is the name of a shell function of the program.
func (p program) function() string { return "_" + strings.ReplaceAll(p.name, "-", "_") }

func (p program) commandNames() []string {
	var out []string
	for _, c := range p.commands {
		out = append(out, c.name)
	}
	return out
}

// spelt are all ways in which flags are typed.
func spelt(flags []option) string {
	var out []string
	for _, f := range flags {
		out = append(out, f.names...)
	}
	return strings.Join(out, " ")
}

// bash writes the script for bash, from 3.2 on. Readline splits words at = and hands over --flag = value.
func (p program) bash(w io.Writer) {
	fmt.Fprintf(w, `# bash completion of %[1]s. To have it in every shell, put into ~/.bashrc: eval "$(%[1]s completion bash)"
%[2]s() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command= words= files= lead= word i
	COMPREPLY=()
	case $cur in
	=) cur= ;;
	--*=*) prev=${cur%%%%=*} lead=${cur%%%%=*}= cur=${cur#*=} ;;
	*) if [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD - 2]}; fi ;;
	esac
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		-*) ;;
		%[3]s) command=${COMP_WORDS[i]} && break ;;
		*) break ;;
		esac
	done
	case $command/$prev in
`, p.name, p.function(), strings.Join(p.commandNames(), " | "))
	for _, c := range p.commands {
		var free []string // flags whose values nobody knows
		for _, f := range c.flags {
			if f.takes == nil {
				continue
			}
			var at []string
			for _, name := range f.names {
				at = append(at, c.name+"/"+name)
			}
			if set := f.takes.bash(); set != "" {
				fmt.Fprintf(w, "\t%s) %s ;;\n", strings.Join(at, " | "), set)
			} else {
				free = append(free, at...)
			}
		}
		if free != nil {
			fmt.Fprintf(w, "\t%s) return ;;\n", strings.Join(free, " | "))
		}
	}
	fmt.Fprintf(w, "\t*)\n\t\tcase $command/$cur in\n\t\t/-*) words='%s' ;;\n\t\t/*) words='%s' ;;\n", spelt(p.flags), strings.Join(p.commandNames(), " "))
	for _, c := range p.commands {
		all := c.name + "/*"
		if len(c.args) > 0 {
			if set := c.args[0].bash(); set != "" {
				fmt.Fprintf(w, "\t\t%s/-*) words='%s' ;;\n\t\t%s/*) %s ;;\n", c.name, spelt(c.flags), c.name, set)
				continue
			}
			all = c.name + "/-*"
		}
		fmt.Fprintf(w, "\t\t%s) words='%s' ;;\n", all, spelt(c.flags))
	}
	fmt.Fprintf(w, `		esac
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
complete -F %s %s
`, p.function(), p.name)
}

// bash sets what the value can be; "" when nobody knows.
func (a argument) bash() string {
	var out []string
	if len(a.words) > 0 {
		out = append(out, "words='"+strings.Join(a.words, " ")+"'")
	}
	switch {
	case a.files:
		out = append(out, "files=file")
	case a.dirs:
		out = append(out, "files=directory")
	}
	return strings.Join(out, " ")
}

// zsh writes the script for zsh, to be sourced, or put into a folder of fpath as _ and the program's name.
func (p program) zsh(w io.Writer) {
	fmt.Fprintf(w, `#compdef %[1]s
# zsh completion of %[1]s. To have it in every shell, put into ~/.zshrc, after compinit: eval "$(%[1]s completion zsh)"
%[2]s() {
	local curcontext=$curcontext state line
	local -a commands
	typeset -A opt_args
	_arguments -s -S -C \
%[3]s		'1:command:->command' \
		'*:::argument:->argument'
	case $state in
	command)
		commands=(
`, p.name, p.function(), zshFlags(p.flags))
	for _, c := range p.commands {
		fmt.Fprintf(w, "\t\t\t'%s:%s'\n", c.name, zshText.Replace(c.help))
	}
	fmt.Fprintf(w, "\t\t)\n\t\t_describe -t commands command commands\n\t\t;;\n\targument)\n\t\twords=($line[1] \"${words[@]}\")\n\t\t((CURRENT += 1))\n"+
		"\t\tcurcontext=\"${curcontext%%:*:*}:%s-$line[1]:\"\n\t\tcase $line[1] in\n", p.name)
	for _, c := range p.commands {
		fmt.Fprintf(w, "\t\t%s)\n\t\t\t_arguments -s -S \\\n", c.name)
		specs := strings.ReplaceAll(zshFlags(c.flags), "\t\t", "\t\t\t\t")
		for i, a := range c.args {
			at := fmt.Sprint(i + 1)
			if a.many {
				at = "*"
			}
			specs += fmt.Sprintf("\t\t\t\t'%s%s' \\\n", at, a.zsh())
		}
		fmt.Fprintf(w, "%s\n\t\t\t;;\n", strings.TrimSuffix(specs, " \\\n"))
	}
	fmt.Fprintf(w, "\t\tesac\n\t\t;;\n\tesac\n}\nif [[ $funcstack[1] == %[1]s ]]; then\n\t%[1]s \"$@\"\nelse\n\tcompdef %[1]s %[2]s\nfi\n", p.function(), p.name)
}

var zshText = strings.NewReplacer(`\`, `\\`, `'`, `'\''`, `[`, `\[`, `]`, `\]`, `:`, `\:`)

// zshFlags are the lines of _arguments.
func zshFlags(flags []option) string {
	var b strings.Builder
	for _, f := range flags {
		for _, name := range f.names {
			many, value := "", ""
			if f.many {
				many = "*"
			}
			if f.takes != nil {
				value = f.takes.zsh()
				if strings.HasPrefix(name, "--") {
					name += "="
				} else {
					name += "+"
				}
			}
			fmt.Fprintf(&b, "\t\t'%s%s[%s]%s' \\\n", many, name, zshText.Replace(f.help), value)
		}
	}
	return b.String()
}

// zsh is what _arguments is to complete.
func (a argument) zsh() string {
	words := "(" + strings.Join(a.words, " ") + ")"
	action := ""
	switch {
	case a.files && len(a.words) > 0:
		action = `{_alternative "words\:word\:` + words + `" "files\:file\:_files"}`
	case a.files:
		action = "_files"
	case a.dirs:
		action = "_files -/"
	case len(a.words) > 0:
		action = words
	}
	return ":" + zshText.Replace(a.name) + ":" + action
}

// fish writes the script for fish. What stands on the line is read by a function, since fish's own
// __fish_seen_subcommand_from takes the value of a flag for a command.
func (p program) fish(w io.Writer) {
	at := "_" + p.function() + "_at"
	fmt.Fprintf(w, `# fish completion of %[1]s. To have it in every shell: %[1]s completion fish > ~/.config/fish/completions/%[1]s.fish
function %[2]s --description 'whether the command line of %[1]s has come to this command'
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
complete -c %[1]s -f
`, p.name, at)
	flags := func(condition string, all []option) {
		for _, f := range all {
			fmt.Fprintf(w, "complete -c %s -n '%s'", p.name, condition)
			var others []string
			for _, name := range f.names {
				switch long, ok := strings.CutPrefix(name, "--"); {
				case !ok:
					fmt.Fprintf(w, " -s %s", name[1:])
				case name != f.names[0]:
					others = append(others, long)
				default:
					fmt.Fprintf(w, " -l %s", long)
				}
			}
			if f.takes != nil {
				fmt.Fprint(w, f.takes.fish(true))
			}
			fmt.Fprintf(w, " -d '%s'\n", fishText.Replace(f.help))
			for _, name := range others {
				fmt.Fprintf(w, "complete -c %s -n '%s' -l %s -d '%s'\n", p.name, condition, name, fishText.Replace(f.help))
			}
		}
	}
	flags(at+` ""`, p.flags)
	for _, c := range p.commands {
		fmt.Fprintf(w, "complete -c %s -n '%s \"\"' -a %s -d '%s'\n", p.name, at, c.name, fishText.Replace(c.help))
	}
	for _, c := range p.commands {
		flags(at+" "+c.name, c.flags)
		for _, a := range c.args {
			if known := a.fish(false); known != "" {
				fmt.Fprintf(w, "complete -c %s -n '%s %s'%s\n", p.name, at, c.name, known)
			}
		}
	}
}

var fishText = strings.NewReplacer(`\`, `\\`, `'`, `\'`)

// fish are the options of complete for a value, that of a flag or a command's.
func (a argument) fish(ofFlag bool) string {
	out := ""
	switch {
	case ofFlag && a.files:
		out = " -r -F"
	case ofFlag:
		out = " -x"
	case a.files:
		out = " -F"
	}
	words := strings.Join(a.words, " ")
	if a.dirs {
		words += " (__fish_complete_directories)"
	}
	if words = strings.TrimSpace(words); words != "" {
		out += " -a '" + words + "'"
	}
	return out
}
