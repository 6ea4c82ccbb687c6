// Command agent stands in for the operator's agent: to whoever connects it passes on what the reflector, its one
// argument, says.
package main

import (
	"io"
	"log"
	"net"
	"os"
)

func main() {
	listener, err := net.Listen("tcp", ":3128")
	if err != nil {
		log.Fatal(err)
	}
	for {
		client, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			defer client.Close()
			reflector, err := net.Dial("tcp", os.Args[1])
			if err != nil {
				log.Print(err)
				return
			}
			defer reflector.Close()
			io.Copy(client, reflector)
		}()
	}
}
