// TLS and SASL as the environment asks for: KAFKA_CA, KAFKA_MECHANISM, KAFKA_USER, KAFKA_PASSWORD, KAFKA_TOKEN.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// exchange is Sarama's view of a SCRAM client, which it leaves to a library.
type exchange struct {
	hash         scram.HashGeneratorFcn
	conversation *scram.ClientConversation
}

func (e *exchange) Begin(user, password, authorization string) error {
	client, err := e.hash.NewClient(user, password, authorization)
	if err == nil {
		e.conversation = client.NewConversation()
	}
	return err
}

func (e *exchange) Step(challenge string) (string, error) { return e.conversation.Step(challenge) }

func (e *exchange) Done() bool { return e.conversation.Done() }

type bearer string

func (b bearer) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(b)}, nil
}

func secure(config *sarama.Config) {
	if file := os.Getenv("KAFKA_CA"); file != "" {
		pem, err := os.ReadFile(file)
		check(err)
		authorities := x509.NewCertPool()
		authorities.AppendCertsFromPEM(pem)
		config.Net.TLS.Enable = true
		config.Net.TLS.Config = &tls.Config{RootCAs: authorities}
	}
	mechanism := os.Getenv("KAFKA_MECHANISM")
	if mechanism == "" {
		return
	}
	config.Net.SASL.Enable = true
	config.Net.SASL.Mechanism = sarama.SASLMechanism(mechanism)
	config.Net.SASL.User, config.Net.SASL.Password = os.Getenv("KAFKA_USER"), os.Getenv("KAFKA_PASSWORD")
	config.Net.SASL.TokenProvider = bearer(os.Getenv("KAFKA_TOKEN"))
	hash := scram.SHA256
	if mechanism == sarama.SASLTypeSCRAMSHA512 {
		hash = scram.SHA512
	}
	config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &exchange{hash: hash} }
}
