// A Majordomo worker from RFC 18 alone, for Node and its package zeromq.
//
//     node majordomo_worker.js ENDPOINT SERVICE NAME
//
// Every job is answered in as many parts as it has frames, and `NAME did it` for the rest.
const zmq = require("zeromq")

const [endpoint, service, name] = process.argv.slice(2)
const HEADER = "MDPW02"
const READY = Buffer.of(1)
const [REQUEST, PARTIAL, FINAL, HEARTBEAT, DISCONNECT] = [2, 3, 4, 5, 6]

async function main() {
  const broker = new zmq.Dealer({ linger: 0 })
  broker.connect(endpoint)
  await broker.send([HEADER, READY, service])
  console.log("ready")
  for await (const [header, command, client, empty, ...body] of broker) {
    if (header.toString() !== HEADER) throw new Error(`header ${header}`)
    if (command[0] === HEARTBEAT) {
      await broker.send([HEADER, Buffer.of(HEARTBEAT)])
      console.log("heartbeat")
    } else if (command[0] === DISCONNECT) {
      console.log("disconnect")
      return
    } else if (command[0] === REQUEST && empty.length === 0) {
      console.log("job", body.join("|"))
      for (const frame of body) await broker.send([HEADER, Buffer.of(PARTIAL), client, "", frame])
      await broker.send([HEADER, Buffer.of(FINAL), client, "", `${name} did it`])
    } else throw new Error(`command ${command[0]}`)
  }
}

main()
