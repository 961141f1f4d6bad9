//! The objects as an apiserver has them: with all that a source has to read past.

use serde_json::{Value, json};

use super::Kind;
use super::cluster::{APPS, About, Feed, Pod, Policy, namespace, node_addresses, node_ranges};

/// Teams that own namespaces.
const TEAMS: usize = 20;
/// Kinds of namespaces.
const ENVIRONMENTS: [&str; 3] = ["prod", "stage", "test"];
/// Images that a kubelet reports.
const IMAGES: usize = 50;

/// How far a pod is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Unscheduled,
    Scheduled,
    Running,
    /// Told to end, and still there.
    Ending,
}

impl Pod {
    /// How far it is while nothing happens to it.
    pub(super) fn stage(&self) -> Stage {
        if self.addresses.is_empty() { Stage::Scheduled } else { Stage::Running }
    }
}

impl Feed {
    pub(super) fn node_object(&self, node: usize) -> Value {
        let (name, addresses, ranges) = match node {
            0 => (self.own.name.clone(), self.own.addresses.clone(), self.own.pod_cidrs.clone()),
            _ => (node_name(node), node_addresses(node).to_vec(), node_ranges(node).to_vec()),
        };
        let mut known: Vec<Value> =
            addresses.iter().map(|address| json!({"type": "InternalIP", "address": address})).collect();
        known.push(json!({"type": "Hostname", "address": name}));
        let now = time(self.now());
        let condition = |kind: &str, holds: bool, reason: &str| {
            let status = if holds { "True" } else { "False" };
            json!({
                "type": kind, "status": status, "reason": reason, "message": format!("kubelet says {reason}"),
                "lastHeartbeatTime": now, "lastTransitionTime": time(0),
            })
        };
        let images: Vec<Value> = (0..IMAGES)
            .map(|image| {
                let name = format!("registry.example/team-{:02}/app-{image:03}", image % TEAMS);
                let names = [format!("{name}@sha256:{image:064x}"), format!("{name}:v1.{image}")];
                json!({"names": names, "sizeBytes": 40_000_000 + image})
            })
            .collect();
        let owned = ["addresses", "allocatable", "capacity", "conditions", "images", "nodeInfo"];
        let amounts = json!({"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"});
        json!({
            "kind": "Node",
            "apiVersion": Kind::Node.version(),
            "metadata": {
                "name": name,
                "uid": format!("00000000-0000-4000-8000-{node:012x}"),
                "creationTimestamp": time(0),
                "labels": {
                    "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                    "node.kubernetes.io/instance-type": "large",
                    "topology.kubernetes.io/zone": format!("zone-{}", node % 3),
                },
                "annotations": {
                    "node.alpha.kubernetes.io/ttl": "15",
                    "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                },
                "managedFields": [managed("kubelet", "status", &owned)],
            },
            "spec": {"podCIDR": ranges.first(), "podCIDRs": ranges, "providerID": format!("example:///{name}")},
            "status": {
                "addresses": known,
                "allocatable": amounts,
                "capacity": amounts,
                "conditions": [
                    condition("MemoryPressure", false, "KubeletHasSufficientMemory"),
                    condition("DiskPressure", false, "KubeletHasNoDiskPressure"),
                    condition("PIDPressure", false, "KubeletHasSufficientPID"),
                    condition("Ready", true, "KubeletReady"),
                ],
                "images": images,
                "nodeInfo": {
                    "kernelVersion": "6.12.0", "kubeletVersion": "v1.36.0",
                    "containerRuntimeVersion": "containerd://2.2.0",
                },
            },
        })
    }

    pub(super) fn namespace_object(&self, number: usize) -> Value {
        let name = namespace(number);
        json!({
            "kind": "Namespace",
            "apiVersion": Kind::Namespace.version(),
            "metadata": {
                "name": name,
                "uid": format!("00000000-0000-4000-9000-{number:012x}"),
                "creationTimestamp": time(0),
                "labels": {
                    "kubernetes.io/metadata.name": name,
                    "team": team(number),
                    "environment": ENVIRONMENTS[number % ENVIRONMENTS.len()],
                },
                "managedFields": [managed("kubectl", "metadata", &["labels"])],
            },
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        })
    }

    pub(super) fn pod_object(&self, pod: &Pod, stage: Stage) -> Value {
        let app = APPS[pod.app()];
        let label = if pod.astray { "astray" } else { app };
        let created = time(pod.created);
        let chosen = ["containers", "dnsPolicy", "restartPolicy", "schedulerName", "securityContext", "volumes"];
        let seen = ["conditions", "containerStatuses", "hostIP", "hostIPs", "phase", "podIP", "podIPs", "startTime"];
        let mut metadata = json!({
            "name": pod.name,
            "generateName": format!("{app}-7d9f8b6c5d-"),
            "namespace": namespace(pod.namespace),
            "uid": pod.uid,
            "creationTimestamp": created,
            "labels": {
                "app": label, "app.kubernetes.io/name": app, "app.kubernetes.io/managed-by": "Helm",
                "pod-template-hash": "7d9f8b6c5d", "track": if pod.nth.is_multiple_of(2) { "stable" } else { "canary" },
            },
            "annotations": {
                "prometheus.io/scrape": "true", "prometheus.io/port": "9090",
                "checksum/config": format!("{:064x}", pod.namespace),
            },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{app}-7d9f8b6c5d"),
                "uid": format!("00000000-0000-4000-a000-{:012x}", pod.namespace * APPS.len() + pod.app()),
                "controller": true, "blockOwnerDeletion": true,
            }],
            "managedFields": [
                managed("kube-controller-manager", "spec", &chosen),
                managed("kubelet", "status", &seen),
            ],
        });
        if stage == Stage::Ending {
            metadata["deletionTimestamp"] = time(self.now()).into();
            metadata["deletionGracePeriodSeconds"] = 30.into();
        }
        let mut spec = pod_spec(pod, app);
        if stage != Stage::Unscheduled {
            spec["nodeName"] = if pod.node == 0 { self.own.name.clone() } else { node_name(pod.node) }.into();
        }
        json!({
            "kind": "Pod",
            "apiVersion": Kind::Pod.version(),
            "metadata": metadata,
            "spec": spec,
            "status": self.pod_status(pod, stage, &created),
        })
    }

    fn pod_status(&self, pod: &Pod, stage: Stage, created: &str) -> Value {
        let is_running = matches!(stage, Stage::Running | Stage::Ending);
        let condition = |kind: &str, holds: bool| {
            let status = if holds { "True" } else { "False" };
            json!({"type": kind, "status": status, "lastProbeTime": null, "lastTransitionTime": created})
        };
        let mut status = json!({
            "phase": if is_running { "Running" } else { "Pending" },
            "qosClass": "Burstable",
            "conditions": [
                condition("PodReadyToStartContainers", is_running),
                condition("Initialized", is_running),
                condition("Ready", is_running),
                condition("ContainersReady", is_running),
                condition("PodScheduled", stage != Stage::Unscheduled),
            ],
        });
        if !is_running {
            return status;
        }
        let host = if pod.node == 0 { self.own.addresses.clone() } else { node_addresses(pod.node).to_vec() };
        let ips = |addresses: &[std::net::IpAddr]| addresses.iter().map(|ip| json!({"ip": ip})).collect::<Vec<_>>();
        status["startTime"] = created.into();
        status["hostIP"] = json!(host.first());
        status["hostIPs"] = ips(&host).into();
        status["podIP"] = json!(pod.addresses.first());
        status["podIPs"] = ips(&pod.addresses).into();
        status["containerStatuses"] = json!([{
            "name": "main", "ready": true, "started": true, "restartCount": 0,
            "image": "registry.example/app:v1.0", "imageID": format!("registry.example/app@sha256:{:064x}", pod.app()),
            "containerID": format!("containerd://{:064x}", pod.created),
            "state": {"running": {"startedAt": created}}, "lastState": {},
        }]);
        status
    }

    pub(super) fn policy_object(&self, policy: &Policy) -> Value {
        let port = 8080 + policy.changes % 1000;
        let environment = ENVIRONMENTS[policy.namespace % ENVIRONMENTS.len()];
        let tcp = |port: Value| json!({"protocol": "TCP", "port": port});
        let app = |app: usize| json!({"matchLabels": {"app": APPS[app]}});
        let spec = match policy.about() {
            About::Deny => json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}),
            About::Names => json!({
                "podSelector": {},
                "policyTypes": ["Egress"],
                "egress": [{
                    "to": [{
                        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
                        "podSelector": {"matchLabels": {"app": APPS[0]}},
                    }],
                    "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}],
                }],
            }),
            About::FromApp(to, from) => json!({
                "podSelector": app(to),
                "policyTypes": ["Ingress"],
                "ingress": [{"from": [{"podSelector": app(from)}], "ports": [tcp(port.into())]}],
            }),
            About::FromTeam(to, from) => json!({
                "podSelector": app(to),
                "policyTypes": ["Ingress"],
                "ingress": [{
                    "from": [{
                        "namespaceSelector": {"matchLabels": {"team": team(policy.namespace * 7 + policy.nth)}},
                        "podSelector": app(from),
                    }],
                    "ports": [tcp("http".into()), tcp(port.into())],
                }],
            }),
            About::ToRanges(from) => json!({
                "podSelector": app(from),
                "policyTypes": ["Egress"],
                "egress": [
                    {
                        "to": [{"ipBlock": {
                            "cidr": "0.0.0.0/0", "except": ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"],
                        }}],
                        "ports": [tcp(443.into())],
                    },
                    {
                        "to": [{"ipBlock": {"cidr": format!("198.18.{}.0/24", policy.namespace % 256)}}],
                        "ports": [{"protocol": "TCP", "port": port, "endPort": port + 100}],
                    },
                ],
            }),
            About::ToDatabases(from) => json!({
                "podSelector": app(from),
                "policyTypes": ["Egress"],
                "egress": [{
                    "to": [{
                        "namespaceSelector": {"matchLabels": {"environment": environment}},
                        "podSelector": {
                            "matchExpressions": [{"key": "app", "operator": "In", "values": ["db", "cache"]}],
                        },
                    }],
                    "ports": [tcp(5432.into()), tcp(port.into())],
                }],
            }),
        };
        let name = format!("policy-{:02}", policy.nth);
        policy_object(&name, &namespace(policy.namespace), &policy.uid, policy.created, spec)
    }

    pub(super) fn open_object(&self, pod: &Pod) -> Value {
        let canaries = json!({"namespaceSelector": {}, "podSelector": {"matchLabels": {"track": "canary"}}});
        let spec = json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": [canaries]}]});
        let uid = "00000000-0000-4000-b000-000000000001";
        policy_object("open-to-canaries", &namespace(pod.namespace), uid, pod.created, spec)
    }
}

fn policy_object(name: &str, namespace: &str, uid: &str, created: u64, spec: Value) -> Value {
    json!({
        "kind": Kind::Policy.name(),
        "apiVersion": Kind::Policy.version(),
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "creationTimestamp": time(created),
            "generation": 1,
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "managedFields": [managed("helm", "spec", &["egress", "ingress", "podSelector", "policyTypes"])],
        },
        "spec": spec,
    })
}

fn pod_spec(pod: &Pod, app: &str) -> Value {
    let token = "kube-api-access-x7k2p";
    let probe = |path: &str| {
        json!({
            "httpGet": {"path": path, "port": "http", "scheme": "HTTP"},
            "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
        })
    };
    let environment: Vec<Value> = (0..8)
        .map(|number| json!({"name": format!("SETTING_{number}"), "value": format!("value-{number}-of-{app}")}))
        .collect();
    let tolerate =
        |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    json!({
        "volumes": [{
            "name": token,
            "projected": {
                "sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                    {"downwardAPI": {"items": [
                        {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
                    ]}},
                ],
                "defaultMode": 420,
            },
        }],
        "containers": [{
            "name": "main",
            "image": "registry.example/app:v1.0",
            "ports": [
                {"name": "http", "containerPort": 8000 + pod.app(), "protocol": "TCP"},
                {"name": "metrics", "containerPort": 9090, "protocol": "TCP"},
            ],
            "env": environment,
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
            "volumeMounts": [
                {"name": token, "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
            ],
            "livenessProbe": probe("/healthz"),
            "readinessProbe": probe("/readyz"),
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "imagePullPolicy": "IfNotPresent",
            "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true,
            },
        }],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "securityContext": {"runAsNonRoot": true},
        "schedulerName": "default-scheduler",
        "tolerations": [tolerate("node.kubernetes.io/not-ready"), tolerate("node.kubernetes.io/unreachable")],
        "priority": 0,
        "enableServiceLinks": true,
        "preemptionPolicy": "PreemptLowerPriority",
    })
}

/// An item of `metadata.managedFields`.
fn managed(manager: &str, part: &str, fields: &[&str]) -> Value {
    let owned: serde_json::Map<String, Value> =
        fields.iter().map(|field| (format!("f:{field}"), json!({".": {}}))).collect();
    json!({
        "manager": manager, "operation": "Update", "apiVersion": "v1", "time": time(0), "fieldsType": "FieldsV1",
        "fieldsV1": {format!("f:{part}"): owned},
    })
}

fn node_name(node: usize) -> String {
    format!("node-{node:04}")
}

fn team(number: usize) -> String {
    format!("team-{:02}", number % TEAMS)
}

/// Seconds of the feed's own time as Kubernetes writes them.
fn time(seconds: u64) -> String {
    let (day, hour, minute, second) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("2026-01-{:02}T{hour:02}:{minute:02}:{second:02}Z", 1 + day)
}
