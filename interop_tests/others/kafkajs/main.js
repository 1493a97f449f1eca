// The kafkajs client against a broker, one scenario a run; what it saw goes to stdout as one JSON object.
'use strict'
const { readFileSync } = require('fs')
const { Kafka, CompressionTypes, ConfigResourceTypes, logLevel } = require('kafkajs')

const TIME_LIMIT_MS = 60000
const [scenario, bootstrap, topic, groupId] = process.argv.slice(2)
// TLS and SASL as the environment asks for.
const { KAFKA_CA, KAFKA_MECHANISM, KAFKA_USER, KAFKA_PASSWORD, KAFKA_TOKEN } = process.env
const ssl = KAFKA_CA ? { ca: [readFileSync(KAFKA_CA, 'utf8')] } : undefined
const mechanism = (KAFKA_MECHANISM || '').toLowerCase()
const sasl = {
  '': undefined,
  oauthbearer: { mechanism, oauthBearerProvider: async () => ({ value: KAFKA_TOKEN }) },
}
const users = { mechanism, username: KAFKA_USER, password: KAFKA_PASSWORD }
const kafka = new Kafka({
  ssl,
  sasl: mechanism in sasl ? sasl[mechanism] : users,
  clientId: 'kafkajs-interop',
  brokers: [bootstrap],
  logLevel: logLevel.ERROR,
  logCreator: () => ({ log }) => console.error(log.message, log.error || ''),
})

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

async function until(what, holds) {
  for (let waited = 0; !(await holds()); waited += 20) {
    if (waited > TIME_LIMIT_MS) throw new Error(`still waiting until ${what}`)
    await sleep(20)
  }
}

async function withProducer(work) {
  const producer = kafka.producer({ allowAutoTopicCreation: false })
  await producer.connect()
  try {
    return await work(producer)
  } finally {
    await producer.disconnect()
  }
}

async function withAdmin(work) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    return await work(admin)
  } finally {
    await admin.disconnect()
  }
}

function numbers(partitions, from, to) {
  const messages = []
  for (let n = from; n < to; n++) {
    for (let partition = 0; partition < partitions; partition++) messages.push({ partition, value: `${n}` })
  }
  return messages
}

// Reads with a group of its own until so many messages came.
async function readAll(count) {
  const consumer = kafka.consumer({ groupId: `${topic}-reader` })
  const seen = []
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({
    eachMessage: async ({ partition, message }) => {
      const headers = Object.fromEntries(Object.entries(message.headers).map(([key, value]) => [key, `${value}`]))
      seen.push({ partition, offset: Number(message.offset), key: `${message.key}`, value: `${message.value}`, headers })
    },
  })
  await until(`${count} messages are read`, () => seen.length >= count)
  await consumer.disconnect()
  return seen
}

async function produce() {
  let written = 0
  await withProducer(async (producer) => {
    for (const codec of ['None', 'GZIP']) {
      const messages = []
      for (let n = 0; n < 20; n++) {
        messages.push({
          key: `${codec}-${n}`,
          value: `${codec} ${n} `.repeat(10),
          headers: { codec, n: `${n}` },
        })
      }
      const results = await producer.send({ topic, messages, acks: -1, compression: CompressionTypes[codec] })
      if (results.some((one) => one.errorCode !== 0)) throw new Error(JSON.stringify(results))
      written += messages.length
    }
  })
  return { written, records: await readAll(written) }
}

// A member of the group that notes what it owns and what it read.
async function member(read) {
  const consumer = kafka.consumer({ groupId, sessionTimeout: 10000, heartbeatInterval: 200, rebalanceTimeout: 10000 })
  const state = { consumer, owned: [], count: 0 }
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    state.owned = (payload.memberAssignment[topic] || []).slice().sort()
  })
  consumer.on(consumer.events.REBALANCING, () => {
    state.owned = []
  })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({
    autoCommitInterval: 200,
    eachMessage: async ({ partition, message }) => {
      read.add(`${partition}:${message.offset}`)
      state.count++
    },
  })
  return state
}

async function group() {
  const partitions = 4
  const read = new Set()
  await withProducer(async (producer) => producer.send({ topic, messages: numbers(partitions, 0, 10) }))
  const first = await member(read)
  await until('the first member owns everything', () => first.owned.length === partitions)
  const alone = first.owned
  const second = await member(read)
  await until('two members share', () => first.owned.length === 2 && second.owned.length === 2)
  const shared = [first.owned, second.owned]
  await withProducer(async (producer) => producer.send({ topic, messages: numbers(partitions, 10, 20) }))
  await until('20 messages of each partition are read', () => read.size === 20 * partitions)
  const described = await withAdmin((admin) => admin.describeGroups([groupId]))
  await second.consumer.disconnect()
  await until('the first member owns everything again', () => first.owned.length === partitions)
  const afterwards = first.owned
  await withProducer(async (producer) => producer.send({ topic, messages: numbers(partitions, 20, 30) }))
  await until('30 messages of each partition are read', () => read.size === 30 * partitions)
  await first.consumer.disconnect()
  const offsets = await withAdmin((admin) => admin.fetchOffsets({ groupId, topics: [topic] }))
  const committed = Object.fromEntries(offsets[0].partitions.map((one) => [one.partition, Number(one.offset)]))
  const { state, members } = described.groups[0]
  return { alone, shared, afterwards, read: read.size, read_by_second: second.count, committed, state, members: members.length }
}

async function admin() {
  return withAdmin(async (admin) => {
    const configEntries = [{ name: 'retention.ms', value: '7200000' }]
    const created = await admin.createTopics({ topics: [{ topic, numPartitions: 2, replicationFactor: 1, configEntries }] })
    const again = await admin.createTopics({ topics: [{ topic, numPartitions: 2, replicationFactor: 1 }] })
    await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] })
    let metadata
    await until('the topic has five partitions', async () => {
      metadata = await admin.fetchTopicMetadata({ topics: [topic] })
      return metadata.topics[0].partitions.length === 5
    })
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic }
    await admin.alterConfigs({
      validateOnly: false,
      resources: [{ ...resource, configEntries: [{ name: 'retention.bytes', value: '1000000' }] }],
    })
    let entries
    let settings
    await until('the broker has taken the settings up', async () => {
      const described = await admin.describeConfigs({ includeSynonyms: false, resources: [resource] })
      entries = described.resources[0].configEntries
      settings = Object.fromEntries(entries.filter((one) => one.configSource === 1).map((one) => [one.configName, one.configValue]))
      return settings['retention.bytes'] === '1000000'
    })
    const cluster = await admin.describeCluster()
    const listedBefore = await admin.listTopics()
    await admin.deleteTopics({ topics: [topic] })
    await until('the topic is gone', async () => !(await admin.listTopics()).includes(topic))
    return {
      created,
      again,
      leaders: metadata.topics[0].partitions.map((one) => one.leader),
      settings,
      settings_described: entries.length,
      brokers: cluster.brokers.length,
      controller: cluster.controller,
      listed: listedBefore.includes(topic),
    }
  })
}

async function seek() {
  const start = 1600000000000
  await withProducer(async (producer) => {
    for (let n = 0; n < 10; n++) {
      await producer.send({ topic, messages: [{ value: `${n}`, timestamp: `${start + n * 1000}` }] })
    }
  })
  return withAdmin(async (admin) => {
    const at = async (timestamp) => Number((await admin.fetchTopicOffsetsByTimestamp(topic, timestamp))[0].offset)
    const offsets = {
      before: await at(1),
      exact: await at(start + 3000),
      between: await at(start + 3001),
      after: await at(start + 10000),
    }
    const from = await at(start + 6500)
    const consumer = kafka.consumer({ groupId })
    const values = []
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    await consumer.run({
      eachMessage: async ({ message }) => {
        if (Number(message.offset) >= from) values.push(`${message.value}`)
      },
    })
    consumer.seek({ topic, partition: 0, offset: `${from}` })
    await until('three messages are read', () => values.length >= 3)
    await consumer.disconnect()
    return { offsets, values: values.slice(0, 3) }
  })
}

Promise.resolve({ produce, group, admin, seek }[scenario]()).then(
  (seen) => console.log(JSON.stringify(seen)),
  (error) => {
    console.error(error)
    process.exit(1)
  },
)
