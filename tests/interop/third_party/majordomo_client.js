// A Majordomo client from RFC 18 alone, for Node and its package zeromq.
//
//     node majordomo_client.js ENDPOINT SERVICE JOB...
//
// A job's frames have `|` between them. Prints `part` or `final` and the frames of each reply, likewise.
const zmq = require("zeromq")

const [endpoint, service, ...jobs] = process.argv.slice(2)
const HEADER = "MDPC02"
const REQUEST = Buffer.of(1)
const [PARTIAL, FINAL] = [2, 3]

async function main() {
  const broker = new zmq.Dealer({ linger: 0, receiveTimeout: 15000 })
  broker.connect(endpoint)
  for (const job of jobs) {
    await broker.send([HEADER, REQUEST, service, ...job.split("|")])
    let isFinal = false
    while (!isFinal) {
      const [header, command, about, ...body] = await broker.receive()
      if (header.toString() !== HEADER || about.toString() !== service) throw new Error(`${header} ${about}`)
      if (command[0] !== PARTIAL && command[0] !== FINAL) throw new Error(`command ${command[0]}`)
      isFinal = command[0] === FINAL
      console.log(isFinal ? "final" : "part", body.join("|"))
    }
  }
  broker.close()
}

main()
