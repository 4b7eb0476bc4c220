// loadgen: closed-loop load. One epoll thread, N connections, each with one request open.
// usage: loadgen PROTOCOL PORT CONNECTIONS REQUESTS_EACH [QUEUES] [DATA_BYTES] [BATCH]
//   PROTOCOL: quorate | disque | gmq | beanstalk | redis (a stream with a consumer group). The work is the same for all of
//   them: produce, consume, acknowledge, with BATCH messages a request (quorate; disque pipelines so many ADDJOBs).
//   addjob: ADDJOB alone, BATCH of them pipelined. produce, append: that alone, to a queue, or to a topic that is there.
//   metaq: MetaQ's put to partition 0 of a topic that is there.
//   transact: confirm of a message (of those with ids from QUORATE_FIRST_ID on, 1024 apart), two appends to the topic, and
//   a commit, in one.
// Prints one line: requests a second, messages a second, and the latency's mean, median, p99 and maximum in us.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { IN_BYTES = 1 << 20, OUT_BYTES = 1 << 20 };
typedef struct {
  int fd, step, done, len, queue;
  double sent_at;
  char ids[32768];
  char in[IN_BYTES];
} Client;

static const char *protocol;
static char *data, out[OUT_BYTES];
static int data_bytes, batch, is_redis, is_beanstalk, is_disque, is_gmq, only_adds, is_append, is_transact, is_metaq;
static long next_id, transactions;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}
static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}
static void die(const char *what, const char *detail) {
  fprintf(stderr, "loadgen: %s %.300s\n", what, detail);
  exit(1);
}

static int transaction(Client *c) {
  long id = next_id + 1024 * transactions, at = transactions++ - 32;
  return sprintf(out,
                 "{\"action\":31,\"operations\":[{\"action\":3,\"msg_id\":%ld,\"delivery\":1},"
                 "{\"action\":27,\"topic\":\"bench%d\",\"partition\":0,\"data\":\"%s\"},"
                 "{\"action\":27,\"topic\":\"bench%d\",\"partition\":0,\"data\":\"%s\"},"
                 "{\"action\":30,\"topic\":\"bench%d\",\"group\":\"g\",\"positions\":{\"0\":%ld}}]}\n",
                 id, c->queue, data, c->queue, data, c->queue, at < 0 ? 0 : at);
}
static int quorate_request(Client *c) {
  if (is_transact) return transaction(c);
  int n = is_append ? sprintf(out, "{\"action\":27,\"topic\":\"bench%d\"", c->queue)
                    : sprintf(out, "{\"action\":%d,\"queue\":\"bench%d\"", c->step + 1, c->queue);
  if (c->step == 0 && batch > 1) {
    n += sprintf(out + n, is_append ? ",\"messages\":[" : ",\"retry\":60,\"messages\":[");
    for (int i = 0; i < batch; i++) n += sprintf(out + n, "%s{\"data\":\"%s\"}", i ? "," : "", data);
    n += sprintf(out + n, "]");
  } else if (c->step == 0) {
    n += sprintf(out + n, is_append ? ",\"data\":\"%s\"" : ",\"retry\":60,\"data\":\"%s\"", data);
  } else if (c->step == 1 && batch > 1) {
    n += sprintf(out + n, ",\"count\":%d", batch);
  } else if (c->step == 2) {
    n += sprintf(out + n, batch > 1 ? ",\"msg_ids\":[%s]" : ",\"msg_id\":%s", c->ids);
  }
  return n + sprintf(out + n, "}\n");
}
static int redis_command(int n, int count, const char **words) {
  n += sprintf(out + n, "*%d\r\n", count);
  for (int i = 0; i < count; i++) n += sprintf(out + n, "$%zu\r\n%s\r\n", strlen(words[i]), words[i]);
  return n;
}
static int request(Client *c) {
  char stream[32];
  sprintf(stream, "bench%d", c->queue);
  if (is_metaq) return sprintf(out, "put %s 0 %d 0 %d\r\n%s", stream, data_bytes, c->done, data);
  if (is_beanstalk) {
    if (c->step == 0) return sprintf(out, "put 0 0 60 %d\r\n%s\r\n", data_bytes, data);
    return c->step == 1 ? sprintf(out, "reserve-with-timeout 0\r\n") : sprintf(out, "delete %s\r\n", c->ids);
  }
  if (is_disque) {
    int n = 0, words = 0;
    if (c->step == 0) {
      for (int i = 0; i < batch; i++)
        n = redis_command(n, 6, (const char *[]){"ADDJOB", stream, data, "0", "RETRY", "60"});
      return n;
    }
    char count[16];
    sprintf(count, "%d", batch);
    if (c->step == 1 && batch > 1)
      return redis_command(0, 6, (const char *[]){"GETJOB", "NOHANG", "COUNT", count, "FROM", stream});
    if (c->step == 1) return redis_command(0, 4, (const char *[]){"GETJOB", "NOHANG", "FROM", stream});
    const char *acks[513] = {"ACKJOB"};
    for (words = 0; words * 41 < (int)strlen(c->ids) && words < 512; words++) acks[1 + words] = c->ids + words * 41;
    n = sprintf(out, "*%d\r\n$6\r\nACKJOB\r\n", 1 + words);
    for (int i = 0; i < words; i++) n += sprintf(out + n, "$40\r\n%.40s\r\n", acks[1 + i]);
    return n;
  }
  if (is_gmq) {
    static const char *methods[] = {"Push", "Pop", "Ack"};
    int n = sprintf(out, "{\"method\":\"Service.%s\",\"params\":[", methods[c->step]);
    if (c->step == 0)
      n += sprintf(out + n, "{\"id\":\"%d.%d.%d\",\"topic\":\"%s\",\"body\":\"%s\",\"delay\":\"0\",\"TTR\":\"60\"}", getpid(),
                   c->fd, c->done, stream, data);
    else if (c->step == 1)
      n += sprintf(out + n, "[\"%s\"]", stream);
    else
      n += sprintf(out + n, "\"%s\"", c->ids);
    return n + sprintf(out + n, "],\"id\":%d}\n", c->done);
  }
  if (is_redis) {
    if (c->step == 0) return redis_command(0, 5, (const char *[]){"XADD", stream, "*", "d", data});
    if (c->step == 1)
      return redis_command(0, 9, (const char *[]){"XREADGROUP", "GROUP", "g", "c", "COUNT", "1", "STREAMS", stream, ">"});
    int n = redis_command(0, 4, (const char *[]){"XACK", stream, "g", c->ids});
    return redis_command(n, 3, (const char *[]){"XDEL", stream, c->ids});
  }
  return quorate_request(c);
}

// Each reply_* returns -1 while the reply is not whole, 0 if there was no message, 1 otherwise.
static int quorate_reply(Client *c) {
  if (c->in[c->len - 1] != '\n') return -1;
  if (!strstr(c->in, "\"code\":0")) die("refused:", c->in);
  if (c->step != 1) return 1;
  int n = 0;
  for (char *at = c->in; (at = strstr(at, "\"msg_id\":")); at += 9)
    n += sprintf(c->ids + n, "%s%ld", n ? "," : "", atol(at + 9));
  return n > 0;
}
static int beanstalk_reply(Client *c) {
  char *end = strstr(c->in, "\r\n");
  if (!end) return -1;
  if (c->step != 1) {
    if (strncmp(c->in, "INSERTED", 8) && strncmp(c->in, "DELETED", 7)) die("refused:", c->in);
    return 1;
  }
  int size = 0;
  if (sscanf(c->in, "RESERVED %31s %d", c->ids, &size) != 2) return 0;
  return c->len >= end - c->in + 2 + size + 2 ? 1 : -1;
}
static int resp_size(const char *p, int n) {  // 0: not whole
  const char *end = memmem(p, n, "\r\n", 2);
  if (!end) return 0;
  int head = end - p + 2, value = atoi(p + 1), at = head;
  if (*p == '$') return value < 0 ? head : n >= head + value + 2 ? head + value + 2 : 0;
  if (*p != '*') return head;
  for (int i = 0; i < value; i++) {
    int k = resp_size(p + at, n - at);
    if (!k) return 0;
    at += k;
  }
  return at;
}
static int redis_reply(Client *c) {
  int size = resp_size(c->in, c->len);
  if (!size || (c->step == 2 && !resp_size(c->in + size, c->len - size))) return -1;
  if (c->in[0] == '-') die("refused:", c->in);
  if (c->step != 1) return 1;
  if (c->in[1] == '-' || c->in[1] == '0') return 0;
  char *at = strstr(c->in, "bench");
  at = at ? strstr(at, "*2\r\n$") : NULL;
  return at && sscanf(at + 4, "$%*d %31[^\r]", c->ids) == 1;
}

static int disque_reply(Client *c) {
  int at = 0;
  for (int i = 0; i < (c->step == 0 ? batch : 1); i++) {
    int size = resp_size(c->in + at, c->len - at);
    if (!size) return -1;
    if (c->in[at] == '-') die("refused:", c->in + at);
    at += size;
  }
  if (c->step != 1) return 1;
  if (c->in[1] == '-' || c->in[1] == '0') return 0;
  int n = 0;
  for (char *id = c->in; (id = strstr(id, "\r\n$40\r\nD-")); id += 47) n += sprintf(c->ids + n, "%.40s ", id + 7);
  return n > 0;
}

static int metaq_reply(Client *c) {
  int size = 0;
  char *end = strstr(c->in, "\r\n");
  if (!end) return -1;
  if (sscanf(c->in, "result 200 %d", &size) != 1) die("refused:", c->in);
  return c->len >= end - c->in + 2 + size ? 1 : -1;
}
static int gmq_reply(Client *c) {
  if (c->in[c->len - 1] != '\n') return -1;
  if (!strstr(c->in, "\"error\":null")) die("refused:", c->in);
  if (c->step == 0 && !strstr(c->in, "\"success\"")) die("not pushed:", c->in);
  char *at = c->step == 1 ? strstr(c->in, "\"id\":\"") : NULL;
  return c->step != 1 || (at && sscanf(at + 6, "%31[^\"]", c->ids) == 1);
}

static void submit(Client *c) {
  int n = request(c);
  c->sent_at = now();
  for (int at = 0; at < n;) {
    int sent = send(c->fd, out + at, n - at, 0);
    if (sent <= 0) die("send", "failed");
    at += sent;
  }
}

int main(int argc, char **argv) {
  if (argc < 5) die("usage: loadgen PROTOCOL PORT CONNECTIONS REQUESTS_EACH [QUEUES] [DATA_BYTES] [BATCH] [FIRST]", "");
  protocol = argv[1];
  is_redis = !strcmp(protocol, "redis");
  is_beanstalk = !strcmp(protocol, "beanstalk");
  is_gmq = !strcmp(protocol, "gmq");
  is_append = !strcmp(protocol, "append");
  is_transact = !strcmp(protocol, "transact");
  next_id = is_transact ? atol(getenv("QUORATE_FIRST_ID")) : 0;
  is_metaq = !strcmp(protocol, "metaq");
  only_adds = is_metaq || is_transact || !strcmp(protocol, "addjob") || !strcmp(protocol, "produce") || is_append;
  is_disque = !strcmp(protocol, "addjob") || !strcmp(protocol, "disque");
  int count = atoi(argv[3]), each = atoi(argv[4]), queues = argc > 5 ? atoi(argv[5]) : 1;
  data_bytes = argc > 6 ? atoi(argv[6]) : 32;
  batch = argc > 7 ? atoi(argv[7]) : 1;
  int first = argc > 8 ? atoi(argv[8]) : 0;
  data = malloc(data_bytes + 1);
  memset(data, 'x', data_bytes);
  data[data_bytes] = 0;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  int poll = epoll_create1(0), measured = 0, open_count = count;
  Client *clients = calloc(count, sizeof *clients);
  double *latency = malloc(sizeof *latency * count * each);
  for (int i = 0; i < count; i++) {
    Client *c = &clients[i];
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    c->queue = first + i % queues;
    if (connect(c->fd, (void *)&address, sizeof address)) die("can't connect to port", argv[2]);
    int one = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (is_redis) {
      char stream[32];
      sprintf(stream, "bench%d", c->queue);
      int n = redis_command(0, 6, (const char *[]){"XGROUP", "CREATE", stream, "g", "$", "MKSTREAM"});
      send(c->fd, out, n, 0);
      recv(c->fd, c->in, IN_BYTES - 1, 0);
    }
    const char *token = getenv("QUORATE_TOKEN");
    if (token && !strcmp(argv[1], "quorate")) {
      int n = sprintf(out, "{\"action\":16,\"token\":\"%s\"}", token);
      send(c->fd, out, n, 0);
      n = recv(c->fd, c->in, IN_BYTES - 1, 0);
      if (n <= 0 || !memmem(c->in, n, "\"code\":0", 8)) die("the token is refused on port", argv[2]);
    }
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(poll, EPOLL_CTL_ADD, c->fd, &event);
  }
  double begun = now();
  for (int i = 0; i < count; i++) submit(&clients[i]);
  while (open_count) {
    struct epoll_event events[256];
    int n = epoll_wait(poll, events, 256, 20000);
    if (n == 0) die("no reply for 20 s from", protocol);
    for (int k = 0; k < n; k++) {
      Client *c = events[k].data.ptr;
      int got = recv(c->fd, c->in + c->len, IN_BYTES - 1 - c->len, 0);
      if (got <= 0) die("closed by", protocol);
      c->len += got;
      c->in[c->len] = 0;
      int reply = is_redis ? redis_reply(c) : is_beanstalk ? beanstalk_reply(c) : is_disque ? disque_reply(c) : is_gmq ? gmq_reply(c) : is_metaq ? metaq_reply(c) : quorate_reply(c);
      if (reply < 0) continue;
      latency[measured++] = now() - c->sent_at;
      c->step = reply && !only_adds ? (c->step + 1) % 3 : 0;
      c->len = 0;
      if (++c->done < each) {
        submit(c);
      } else {
        close(c->fd);
        open_count--;
      }
    }
  }
  double took = now() - begun, sum = 0;
  for (int i = 0; i < measured; i++) sum += latency[i];
  qsort(latency, measured, sizeof *latency, ascending);
  printf("rps %.0f mps %.0f avg_us %.0f p50_us %.0f p99_us %.0f max_us %.0f\n", measured / took,
         measured / took / (only_adds ? 1 : 3) * batch, sum / measured * 1e6, latency[measured / 2] * 1e6,
         latency[measured * 99 / 100] * 1e6, latency[measured - 1] * 1e6);
  return 0;
}
