// SPDX-License-Identifier: Apache-2.0

//go:build live

package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/egress-proxies/egress-proxies-operator/internal/cli"
	"github.com/egress-proxies/egress-proxies-operator/internal/controller/collector"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
	"github.com/egress-proxies/egress-proxies-operator/live/lab"
	"github.com/egress-proxies/egress-proxies-operator/test/faults"
	"github.com/egress-proxies/egress-proxies-operator/test/process"
)

// asOperator in the environment makes this test binary an operator, as the JSON of a life says.
const asOperator = "EGRESS_FAULTS_OPERATOR"

// life is what an operator's process is told.
type life struct {
	Kubeconfig, Providers, AgentDir string
	Collector                       collector.Mode
	// Cluster and Bystander tell what objects are.
	Cluster, Bystander string
}

// order is a line that an operator reads: to begin to count the calls, with that fault; or to say what calls there were.
type order struct {
	Number int
	Arm    bool
	Fault  faults.Fault
}

// answer is the line that it prints then.
type answer struct {
	Number  int
	Steps   []faults.Step
	Kinds   map[faults.Step][]faults.Kind
	Methods []string
}

// What begins the lines that an operator prints for its test.
const (
	answerLine = "faults answer: "
	firedLine  = "faults fired: "
)

// grace is how long the collector looks at what seems to be a leftover.
const grace = 6 * time.Second

// operate is an operator until SIGTERM, or until the fault kills it.
func operate(text string) int {
	var l life
	err := json.Unmarshal([]byte(text), &l)
	if err == nil {
		err = l.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (l life) run() error {
	file, err := cli.LoadProviders(l.Providers)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	cli.TakeKubernetesLogs(log)
	var number atomic.Int64
	injector := &faults.Injector{
		Class: l.class, Untold: true, Exit: dieNow,
		Fire: func(k faults.Kind) { fmt.Printf("%s%d %s\n", firedLine, number.Load(), k) },
	}
	injector.Arm(faults.Fault{})
	go obey(injector, &number) // ends with the process
	self, hosts := injector.NewLife(), file.Entries[0].HostNames()
	return cli.Operator{
		REST: config, File: file, AgentDir: l.AgentDir, Metrics: "0", Log: log,
		Collector: l.Collector, CollectorGrace: grace,
		Decorators: []cli.Decorator{func(b libvirt.Backend) libvirt.Backend { // called for one host after the other
			host := hosts[0]
			hosts = append(hosts[1:], host)
			return self.Backend(host, b)
		}},
	}.Run(ctx)
}

func dieNow() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// obey does what comes in on the standard input; number is that of the order that armed the injector.
func obey(i *faults.Injector, number *atomic.Int64) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			fmt.Fprintln(os.Stderr, err)
			continue
		}
		reply := answer{Number: o.Number}
		if o.Arm {
			number.Store(int64(o.Number))
			i.Arm(o.Fault)
		} else {
			reply.Steps, reply.Methods, reply.Kinds = i.Steps(), i.Methods(), map[faults.Step][]faults.Kind{}
			for _, s := range reply.Steps {
				reply.Kinds[s] = i.KindsOf(s)
			}
		}
		text, err := json.Marshal(reply)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			continue
		}
		fmt.Printf("%s%s\n", answerLine, text)
	}
}

var (
	instancePattern  = regexp.MustCompile(`^vm-([0-9a-f]{32})(\.qcow2|\.seed\.iso)?$`)
	publishedPattern = regexp.MustCompile(`^(base|agent)-` + lab.Entry + `-(?:x86_64-)?[0-9a-f]{32}-[0-9a-f]{12}\.img(\.v1\..*)?$`)
)

// class names objects alike for every subject.
func (l life) class(object string) string {
	rest, ours := strings.CutPrefix(object, libvirt.Prefix+"-"+l.Cluster+"-")
	if m := instancePattern.FindStringSubmatch(rest); ours && m != nil {
		kind := map[string]string{"": "domain", ".qcow2": "overlay", ".seed.iso": "seed"}[m[2]]
		if m[1] == strings.ReplaceAll(l.Bystander, "-", "") {
			return "bystander-" + kind
		}
		return kind
	}
	if m := publishedPattern.FindStringSubmatch(rest); ours && m != nil {
		if m[2] != "" {
			return m[1] + "-marker"
		}
		return m[1]
	}
	return strings.ReplaceAll(object, "/", "-")
}

// operator is such a process.
type operator struct {
	*process.Process
	orders *os.File
	number int
	// armed is the number of the order that armed it.
	armed int
}

// hire starts one.
func hire(l life) (*operator, error) {
	text, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), asOperator+"="+string(text))
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd.Stdin = theirs
	p, err := process.Start(cmd, nil)
	if err != nil {
		ours.Close()
		return nil, err
	}
	return &operator{Process: p, orders: ours}, nil
}

const (
	stopTime   = 30 * time.Second
	answerTime = 10 * time.Second
)

// fire ends it in good order.
func (o *operator) fire() error {
	defer o.orders.Close()
	if o.dead() {
		return nil
	}
	return o.Stop(stopTime)
}

func (o *operator) dead() bool {
	select {
	case <-o.Ended():
		return true
	default:
		return false
	}
}

// tell gives an order, and returns the answer to it.
func (o *operator) tell(ctx context.Context, what order) (a answer, err error) {
	o.number++
	what.Number = o.number
	if what.Arm {
		o.armed = what.Number
	}
	text, err := json.Marshal(what)
	if err != nil {
		return a, err
	}
	if _, err := o.orders.Write(append(text, '\n')); err != nil {
		return a, err
	}
	err = lab.Until(ctx, answerTime, "the operator's answer", func(context.Context) (bool, error) {
		for line := range strings.Lines(o.Output()) {
			_, reply, ok := strings.Cut(line, answerLine)
			if ok && strings.HasSuffix(reply, "\n") && json.Unmarshal([]byte(reply), &a) == nil && a.Number == what.Number {
				return true, nil
			}
		}
		if o.dead() {
			return false, fmt.Errorf("the operator ended: %s", o.Output())
		}
		return false, nil
	})
	return a, err
}

// died says whether the process ends by a fault, now that it gives no answer.
func (o *operator) died() bool {
	select {
	case <-o.Ended():
		return strings.Contains(o.Output(), firedLine)
	case <-time.After(answerTime):
		return false
	}
}

// fired says whether the fault of the last order that armed it was made.
func (o *operator) fired() bool {
	return o.armed > 0 && strings.Contains(o.Output(), fmt.Sprintf("%s%d ", firedLine, o.armed))
}

// agentsBeside is a folder with agents other than those of a folder: by one byte.
func agentsBeside(from, to string) error {
	all, err := filepath.Glob(filepath.Join(from, "egress-agent-linux-*"))
	if err != nil {
		return err
	}
	for _, path := range all {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(path)), append(content, 0), 0o755); err != nil {
			return err
		}
	}
	return nil
}
