# Keys and certificates, by openssl, in the folder where this runs.
set -euo pipefail
umask 077
openssl_conf='[req]
distinguished_name = none
[none]'

# key makes a key, $1.key.
key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1.key"; }

# sign makes a certificate of the subject $2 for the key $1.key; the rest are options of openssl x509.
sign() {
  local name=$1 subject=$2
  shift 2
  openssl req -new -config <(echo "$openssl_conf") -key "$name.key" -subj "$subject" |
    openssl x509 -req -days 365 -out "$name.crt" "$@" 2>/dev/null
}

# authority makes an authority.
authority() {
  key "$1"
  sign "$1" "/CN=testbed-$1" -signkey "$1.key" -extfile <(echo "basicConstraints = critical, CA:TRUE
keyUsage = critical, digitalSignature, keyEncipherment, keyCertSign
subjectKeyIdentifier = hash")
}

# issue makes a certificate $2 for a client and server with the subject $3 and the names $4, signed by the authority $1.
issue() {
  key "$2"
  sign "$2" "$3" -CA "$1.crt" -CAkey "$1.key" -set_serial "0x$(openssl rand -hex 8)" -extfile <(echo "keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
${4:+subjectAltName = $4}")
}

# issue_server makes the certificate of the API server, signed by the authority $1.
issue_server() { issue "$1" apiserver /CN=kube-apiserver '{{.ServerNames}}'; }

# token_key makes a key that signs the tokens of ServiceAccounts, $1.key and $1.pub.
token_key() {
  key "$1"
  openssl pkey -in "$1.key" -pubout -out "$1.pub"
}

# user makes a certificate and a kubeconfig for the user $1 with the subject $2.
user() {
  issue ca "$1" "$2"
  cat >"$1.conf" <<END
apiVersion: v1
kind: Config
clusters: [{name: testbed, cluster: {server: '{{.Server}}', certificate-authority: {{.PKI}}/ca.crt}}]
users: [{name: $1, user: {client-certificate: {{.PKI}}/$1.crt, client-key: {{.PKI}}/$1.key}}]
contexts: [{name: testbed, context: {cluster: testbed, user: $1}}]
current-context: testbed
END
}

# make_all makes those of a new cluster.
make_all() {
  authority ca
  authority front-ca
  issue front-ca front /CN=front-proxy
  issue_server ca
  issue ca apiserver-client /O=system:masters/CN=apiserver-client # the API server is a client of the kubelets
  user admin /O=system:masters/CN=admin
  user kube-controller-manager /CN=system:kube-controller-manager
  user kube-scheduler /CN=system:kube-scheduler
  user bootstrap /O=system:bootstrappers/CN=system:bootstrap:testbed # a kubelet that has no certificate yet
  token_key sa
}
