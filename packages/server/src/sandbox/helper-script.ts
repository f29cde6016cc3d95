/** System calls that Perl has no word for, by their numbers on x64 and arm64; the younger ones have the same everywhere. */
const numbers = {
  unshare: [272, 97],
  setns: [308, 268],
  prlimit: [302, 261],
  setgroups: [116, 159],
  setresgid: [119, 149],
  setresuid: [117, 147],
  setsid: [112, 157],
  prctl: [157, 167],
  close: [3, 57],
  exit_group: [231, 94],
  dup3: [292, 24],
  memfd_create: [319, 279],
  rt_sigprocmask: [14, 135],
  signalfd4: [289, 74],
  open_tree: [428, 428],
  move_mount: [429, 429],
  mount_setattr: [442, 442],
  mount: [165, 40],
  clone3: [435, 435],
  umount2: [166, 39],
} as const;

const column = ['x64', 'arm64'].indexOf(process.arch);

/** Arguments of the script that name its system calls; null where their numbers are not known. */
export const callArguments: string[] | null =
  column === -1 ? null : Object.entries(numbers).map(([name, of]) => `${name}=${of[column]}`);

/**
 * Reads orders, a line each, from its parent, whose pid is its first argument, and answers each with its number.
 *
 * `mount`, in a child of its own: it clones the two trees of the volume, so that no mount is seen on the host; lets their
 * files appear as those of the sandbox's user (an idmapped mount, mount_setattr(2)), without set-uid, devices or
 * propagation; enters the mount namespace of the sandbox, when it still is the one that was meant; and puts them there.
 * `mounters` says how many such orders are expected: for so many a child is there already and has a user namespace whose maps
 * are not written yet, since the forks for both are nearly all that a mount takes (docs/decisions/0315).
 *
 * `move`: what is mounted at one folder is mounted at another instead. The kernel's own way of moving is closed where mounts are
 * shared, as under systemd.
 *
 * `launch`: it starts bwrap with the descriptors that it expects, each of which is opened anew by way of /proc: those of
 * the parent, and pipes, whose other ends the parent opens in the same way. It answers `started` with the pid and those
 * ends, and goes on at `taken`, which brings the limits: whoever began it knows by then which process to end when something
 * fails, and without that word, as after `dropped` or the end of this process, it ends itself. It answers `exit` once bwrap has
 * ended.
 *
 * The process that becomes bwrap is born in the cgroups of the sandbox, and so is what bwrap starts: to move it there would wait
 * for a grace period of the kernel (docs/decisions/0375). Another child, forked while bwrap begins, reads who is the first process
 * of the sandbox (`init`), moves that where it was not born, and then, as the user of the sandbox, who has no power over any other
 * process, sets its rlimits (prlimit(2)); then it says `limited`. bwrap itself is none of the agent's processes: it is moved to
 * where the service is, while the program runs, and `ok` is answered. Where nothing can be born in a group, the child moves itself to
 * where it is already before all that, and the grace period passes meanwhile (docs/decisions/0185).
 */
export const helperScript = String.raw`
use strict;
my ($parent, @calls) = @ARGV;
my %calls = map { split /=/ } @calls;
# A number goes to the kernel as such only when it is no string.
sub call { my ($name, @values) = @_; return syscall($calls{$name} + 0, @values) }
sub must { my ($name) = @_; my $result = &call; $result >= 0 or die "$name: $!"; return $result }
# PR_SET_PDEATHSIG: also one that stands still, and so reads no end of its input, ends with the service.
must("prctl", 1, 9);
getppid() == $parent or exit;
sub close_all_but {
  my %kept = map { fileno($_) => 1 } @_;
  opendir(my $own, "/proc/self/fd") or die "fd: $!";
  my @inherited = grep { /^\d+$/ && $_ > 2 && !$kept{$_} } readdir $own;
  closedir $own;
  call("close", $_ + 0) for @inherited;
}
# What its parent inherited and hands on to every child is not for sandboxes.
close_all_but();
my $helper = $$;
my $empty = "\0";
# The set of SIGCHLD alone. It is read from a descriptor, as a handler may be run too late by one read.
my $child_set = pack("Q", 1 << 16);
must("rt_sigprocmask", 0, $child_set, 0, 8);
my $ends_fd = must("signalfd4", -1, $child_set, 8, 02004000);
open(my $ends, "<&=", $ends_fd) or die "signalfd: $!";

sub unhex { return pack("H*", $_[0]) }
# What went wrong, on one line.
sub reason { my ($said) = @_; $said =~ s/\s+/ /g; return $said }
sub say_line { syswrite STDOUT, join(" ", @_) . "\n" }
# How a child ends: exit would flush and free what is the parent's, which takes time, too.
sub leave { call("exit_group", 0) }
sub answer {
  my ($number, $work) = @_;
  say_line($number, eval { $work->(); 1 } ? "ok" : reason($@));
  leave();
}

# Orders that a child does, by its pid.
my %working;

# The parent's ends of pipes of launches, until it has opened them, and what is needed once it has, among it both ends of the
# pipe for the word to go on (as with mounters), by order.
my (%ends_of, %begun);

# A child that kept what is others' would let their pipes have no end.
sub let_go { %ends_of = (); %begun = () }

# Does an order in a child, which answers; that it ended is told, too, since one that was killed has answered nothing.
sub in_child {
  my ($number, $work) = @_;
  my $pid = fork;
  if (!defined $pid) { say_line($number, "failed fork: $!"); return undef }
  if ($pid) { $working{$pid} = $number; return $pid }
  let_go();
  answer($number, sub { must("rt_sigprocmask", 1, $child_set, 0, 8); $work->() });
}

# One that has no users yet, and its two maps, to be written once it is known who that is. The files stay when its process ends.
sub user_namespace {
  pipe(my $ready, my $say) or die "pipe: $!";
  pipe(my $wait, my $done) or die "pipe: $!";
  defined(my $pid = fork) or die "fork: $!";
  if (!$pid) {
    close $done;
    call("unshare", 0x10000000) == 0 or leave();
    syswrite $say, "x";
    sysread $wait, my $end, 1;
    leave();
  }
  close $say; close $wait;
  sysread($ready, my $x, 1) == 1 or die "unshare failed";
  my @files;
  for (["<", "ns/user"], [">", "uid_map"], [">", "gid_map"]) {
    my ($mode, $name) = @$_;
    open(my $file, $mode, "/proc/$pid/$name") or die "$name: $!";
    push @files, $file;
  }
  close $done; waitpid $pid, 0;
  return \@files;
}

sub place {
  my ($users, $init, $inode, $from, $to, $folder) = @_;
  my ($ns, @maps) = @{$users || user_namespace()};
  for (@maps) { defined(syswrite $_, "$from $to 1\n") or die "uid_map: $!" }
  my $dir = unhex($folder);
  # struct mount_attr: ID-mapped, nosuid, nodev; nothing cleared; private.
  my $attributes = pack("Q4", 0x100000 | 2 | 4, 0, 1 << 18, fileno $ns);
  my @trees;
  for my $pair (["workspace", "/workspace"], ["home", "/home/agent"]) {
    my ($path, $target) = ("$dir/$pair->[0]\0", "$pair->[1]\0");
    # OPEN_TREE_CLONE, O_CLOEXEC, AT_SYMLINK_NOFOLLOW
    my $tree = must("open_tree", -100, $path, 1 | 02000000 | 0x100);
    must("mount_setattr", $tree, $empty, 0x1000, $attributes, 32);
    push @trees, [$tree, $target];
  }
  open(my $mounts, "<", "/proc/$init/ns/mnt") or die "ns/mnt: $!";
  (stat $mounts)[1] == $inode or die "it is another sandbox";
  must("setns", fileno $mounts, 0x20000);
  for (@trees) {
    my ($tree, $target) = @$_;
    must("move_mount", $tree, $empty, -100, $target, 4);
  }
}

# Children that wait for an order to mount: pid and both ends of the pipe that each reads, since a write to one that was
# killed would be the end of whoever has no other end.
my @mounters;

sub add_mounter {
  pipe(my $read, my $write) or die "pipe: $!";
  defined(my $pid = fork) or die "fork: $!";
  if ($pid) { push @mounters, [$pid, $write, $read]; return }
  # The order of one that fails is for another child, which tells what is wrong.
  eval { wait_to_mount($read) };
  leave();
}

sub wait_to_mount {
  my ($orders) = @_;
  must("rt_sigprocmask", 1, $child_set, 0, 8);
  # As the helper with its own parent.
  must("prctl", 1, 9);
  getppid() == $helper or leave();
  my $users = user_namespace();
  # It waits for long, and what it held of others' pipes would have no end. Perl still counts those descriptors as its own,
  # so what it opens from now on may not be closed by it alone.
  close_all_but($orders, @$users);
  my $order = "";
  until ($order =~ /\n/) { sysread($orders, $order, 65536, length $order) or leave() }
  my ($number, @values) = split " ", $order;
  answer($number, sub { place($users, @values) });
}

sub keep_mounters {
  my ($number, $count) = @_;
  kill 9, (pop @mounters)->[0] while @mounters > $count;
  # One that cannot be made now is made when its order is there.
  eval { add_mounter() while @mounters < $count };
}

sub mount {
  my ($number, @values) = @_;
  my $mounter = shift @mounters;
  return in_child($number, sub { place(undef, @values) }) if !$mounter;
  my ($pid, $orders) = @$mounter;
  $working{$pid} = $number;
  syswrite $orders, join(" ", $number, @values) . "\n";
}

sub move {
  my ($number, @folders) = @_;
  my ($from, $to) = map { unhex($_) . "\0" } @folders;
  # No file is looked at, so that it takes less than a fork would. MS_BIND, MNT_DETACH
  my $done = eval { must("mount", $from, $to, $empty, 4096, 0); must("umount2", $from, 2); 1 };
  say_line($number, $done ? "ok" : reason($@));
}

sub join_group {
  my ($pid, $folder) = @_;
  my $file = unhex($folder) . "/cgroup.procs";
  open(my $procs, ">", $file) or die "$file: $!";
  defined(syswrite $procs, $pid) or die "$file: $!";
}

sub is_in_group {
  my ($pid, $folder) = @_;
  open(my $procs, "<", unhex($folder) . "/cgroup.procs") or return 0;
  return scalar grep { $_ == $pid } <$procs>;
}

# Whether the last one that was to be born in a group of version 2 was.
my $is_born = 1;

# Forks, into a group where that can be.
sub fork_into {
  my ($folder) = @_;
  if (defined $folder && sysopen(my $group, unhex($folder), 0)) {
    # struct clone_args: CLONE_INTO_CGROUP and SIGCHLD.
    my $args = pack("Q11", 1 << 33, (0) x 3, 17, (0) x 5, fileno $group);
    my $pid = call("clone3", $args, length $args);
    $is_born = $pid >= 0;
    return $pid if $is_born;
  }
  return fork;
}

# A thread that moves itself to a group of version 1 waits for nobody. Whoever sets the limits sees whether it is there.
sub join_old_groups {
  for (grep { -e "$_/tasks" } map { unhex($_) } @_) {
    open(my $tasks, ">", "$_/tasks") or next;
    syswrite $tasks, "0";
  }
}

# The process that watches over a sandbox is none of it.
sub leave_groups {
  my ($init, @groups) = @_;
  open(my $stat, "<", "/proc/$init/stat") or return;
  my ($monitor) = <$stat> =~ /.*\) \S (\d+)/s or return;
  for (@groups) {
    my ($folder, $own) = @$_;
    next if $own eq "-" || !is_in_group($monitor, $folder);
    eval { join_group($monitor, $own); 1 } or (is_in_group($monitor, $folder) and die $@);
  }
}

sub become {
  my ($uid, $gid, $saved) = @_;
  return if $uid eq "-";
  must("setgroups", 0, 0);
  must("setresgid", $gid + 0, $gid + 0, $gid + 0);
  must("setresuid", $uid + 0, $uid + 0, (defined $saved ? $saved : $uid) + 0);
}

sub limit {
  my ($number, $info, $own, $uid, $gid, $folders, $limits) = @_;
  # Only for the wait; whether it can be moved is seen where it matters.
  eval { join_group($$, $own) } if !$is_born && $own ne "-";
  # Zero would be this process itself: limits that are set there hold nobody.
  my ($text, $init) = ("", 0);
  until (($init) = $text =~ /"child-pid":\s*([1-9]\d*)\b.*\}/s) {
    sysread($info, $text, 4096, length $text) or die "bwrap ended";
  }
  $init > 1 or die "no pid";
  say_line($number, "init", $init);
  my @groups = groups($folders);
  for (@groups) { join_group($init, $_->[0]) if !is_in_group($init, $_->[0]) }
  # Without power, which it takes back below.
  become($uid, $gid, 0);
  for (split /,/, $limits) {
    my ($resource, $value) = split /:/;
    # struct rlimit64, soft and hard
    my $both = pack("Q2", $value, $value);
    must("prlimit", $init + 0, $resource + 0, $both, 0);
  }
  say_line($number, "limited");
  must("setresuid", -1, 0, -1) if $uid ne "-";
  leave_groups($init, @groups);
}

# Folders of a sandbox's cgroup, each with the service's own in the same hierarchy.
sub groups { return map { [split /:/] } grep { $_ ne "-" } split /,/, $_[0] }

# What stands in a file that nobody else can open.
sub memory_file {
  my ($data) = @_;
  my $name = "berth\0";
  open(my $file, "+<&=", must("memfd_create", $name, 1)) or die "memfd: $!";
  for (my $at = 0; $at < length $data;) { $at += syswrite($file, $data, length($data) - $at, $at) || die "memfd: $!" }
  sysseek($file, 0, 0);
  return $file;
}

# Another descriptor of the same, that nothing is put on. F_DUPFD_CLOEXEC.
sub out_of_the_way {
  my ($handle, $mode) = @_;
  open(my $other, "$mode&=", fcntl($handle, 1030, 128) || die "fcntl: $!") or die "dup: $!";
  return $other;
}

# Becomes bwrap, once it may. The descriptors stand in the order of their numbers there.
sub become_bwrap {
  my ($go, $program, $session, $uid, $gid, $folders, $args, @handles) = @_;
  join_old_groups(@$folders);
  must("setsid") if $session;
  # F_DUPFD_CLOEXEC: out of the way of the numbers that are set next.
  my @high = map { fcntl($_, 1030, 64) || die "fcntl: $!" } @handles;
  must("dup3", $high[$_] + 0, $_ + 0, 0) for 0 .. $#high;
  become($uid, $gid);
  chdir "/" or die "chdir: $!";
  %ENV = ();
  sysread($go, my $word, 1) == 1 or die "nobody waits for it";
  exec { $program } @$args or die "$program: $!";
}

# Orders of bwrap processes, by pid.
my %launched;

sub launch {
  my ($number, $program, $session, $args, $data, $own, $uid, $gid, $folders, @wanted) = @_;
  pipe(my $info, my $say_info) or die "pipe: $!";
  my (@handles, @ends);
  for my $what (@wanted) {
    my ($kind, $value) = split /:/, $what;
    my ($here, $there);
    if ($kind eq "data") { $here = memory_file(unhex($data)) }
    elsif ($kind eq "info") { $here = $say_info }
    elsif ($kind eq "null") { open($here, "+<", "/dev/null") or die "null: $!" }
    elsif ($kind eq "in") { pipe($here, $there) or die "pipe: $!" }
    elsif ($kind eq "out") { pipe($there, $here) or die "pipe: $!" }
    # A descriptor of the parent: for reading, for writing at its end, for both.
    else { open($here, { r => "<", a => ">>", rw => "+<" }->{$kind}, "/proc/$parent/fd/$value") or die "fd $value: $!" }
    push @handles, $here;
    push @ends, $there if $there;
  }
  pipe(my $go, my $say_go) or die "pipe: $!";
  # Where it could not leave again it is not born: the sandbox's first process alone is moved there.
  my @folders = map { $_->[0] } grep { $_->[1] ne "-" } groups($folders);
  my ($newest) = grep { !-e unhex($_) . "/tasks" } @folders;
  defined(my $pid = fork_into($newest)) or die "fork: $!";
  if (!$pid) {
    let_go();
    close $say_go;
    # The numbers below are those of bwrap.
    my $answers = out_of_the_way(\*STDOUT, ">");
    my $may_go = out_of_the_way($go, "<");
    eval {
      must("rt_sigprocmask", 1, $child_set, 0, 8);
      become_bwrap($may_go, unhex($program), $session, $uid, $gid, \@folders, [split /\0/, unhex($args), -1], @handles);
    };
    syswrite $answers, "$number failed " . reason($@) . "\n";
    # Not by exit, which would flush and free what is the parent's.
    kill 9, $$;
  }
  $launched{$pid} = $number;
  $ends_of{$number} = \@ends;
  $begun{$number} = { say_go => $say_go, go => $go, info => $info, whose => [$own, $uid, $gid, $folders] };
  say_line($number, "started", $pid, map { fileno $_ } @ends);
}

sub forget { my ($number) = @_; delete $ends_of{$number}; return delete $begun{$number} }

# bwrap begins, and whoever limits it is forked meanwhile.
sub taken {
  my ($number, $limits) = @_;
  my $launch = $begun{$number} or return;
  syswrite $launch->{say_go}, "x";
  my ($info, $whose) = @{forget($number)}{qw(info whose)};
  undef $launch;
  in_child($number, sub { limit($number, $info, @$whose, $limits) });
}

my %orders = (
  mount => \&mount,
  move => \&move,
  mounters => \&keep_mounters,
  launch => sub { eval { &launch; 1 } or say_line($_[0], "failed", reason($@)) },
  taken => sub { taken(@_) },
  dropped => sub { forget($_[0]) },
);

my $orders = "";
while (1) {
  my $ready = "";
  vec($ready, $_, 1) = 1 for 0, $ends_fd;
  next if select($ready, undef, undef, undef) < 1;
  if (vec($ready, $ends_fd, 1)) {
    # Several ends may be told as one.
    sysread($ends, my $told, 4096);
    while ((my $pid = waitpid(-1, 1)) > 0) {
      my $status = $?;
      my ($number, $worked) = (delete $launched{$pid}, delete $working{$pid});
      say_line($number, "exit", $status) if defined $number;
      say_line($worked, "gone") if defined $worked;
      @mounters = grep { $_->[0] != $pid } @mounters;
    }
  }
  if (vec($ready, 0, 1)) {
    sysread(STDIN, my $more, 65536) or exit;
    $orders .= $more;
    next if index($more, "\n") < 0;
    my @lines = split /\n/, $orders, -1;
    $orders = pop @lines;
    for (@lines) {
      my ($number, $order, @values) = split " ";
      $orders{$order}->($number, @values);
    }
  }
}
`;
