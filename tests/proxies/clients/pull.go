// Pulls so many messages with net/http, and prints each as a line of JSON.
package main

import (
	"encoding/json"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
)

func main() {
	count, _ := strconv.Atoi(os.Args[2])
	for number := 0; number < count; number++ {
		pulled, err := http.Get(os.Args[1])
		if err != nil {
			log.Fatal(err)
		}
		body, err := io.ReadAll(pulled.Body)
		if err != nil {
			log.Fatal(err)
		}
		headers := map[string]string{}
		for name := range pulled.Header {
			headers[strings.ToLower(name)] = pulled.Header.Get(name)
		}
		json.NewEncoder(os.Stdout).Encode(map[string]any{"status": pulled.StatusCode, "headers": headers, "body": body})
	}
}
