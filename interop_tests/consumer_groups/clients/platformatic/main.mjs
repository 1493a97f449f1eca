// One member of a group of the consumer protocol on @platformatic/kafka, as members.py describes it.
import { createInterface } from 'node:readline'
import { Consumer, MessagesStreamFallbackModes, MessagesStreamModes } from '@platformatic/kafka'

const { bootstrap, group, client, topic, assignor, instance } = JSON.parse(process.argv[2])
const read = {}
let failed = null
const consumer = new Consumer({
  bootstrapBrokers: [bootstrap],
  clientId: client,
  groupId: group,
  groupProtocol: 'consumer',
  autocommit: false,
  maxWaitTime: 50,
  ...(assignor ? { groupRemoteAssignor: assignor } : {}),
  ...(instance ? { groupInstanceId: instance } : {}),
})
const stream = await consumer.consume({
  topics: [topic],
  mode: MessagesStreamModes.COMMITTED,
  fallbackMode: MessagesStreamFallbackModes.EARLIEST,
})
stream.on('data', ({ topic, partition, offset }) => {
  ;(read[`${topic}-${partition}`] ??= []).push(Number(offset))
})
stream.on('error', (error) => {
  failed = `${error}`
})

const work = {
  state: () => {},
  forget: () => {
    for (const name of Object.keys(read)) delete read[name]
  },
  // This client has one way of committing.
  commit: ({ offsets }) =>
    consumer.commit({
      offsets: Object.entries(offsets).map(([partition, offset]) => ({
        topic,
        partition: Number(partition),
        offset: BigInt(offset),
        leaderEpoch: -1,
      })),
    }),
  close: async () => {
    await stream.close()
    await consumer.close()
  },
}

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line)
  await work[command.do](command)
  const owned = (consumer.assignments ?? []).flatMap(({ topic, partitions }) => partitions.map((one) => `${topic}-${one}`))
  console.log(JSON.stringify({ owned, read, error: failed }))
  if (command.do === 'close') process.exit(0)
}
