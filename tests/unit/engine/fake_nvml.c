// libnvidia-ml.so.1 as a test wants it: FAKE_NVML says what it finds.
//   "lost"              the GPU is lost
//   "broken"            the driver cannot be reached
//   "1234:1024,77:"     processes and the bytes that they hold ("": not told)
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct Memory {
  unsigned long long total, free, used;
};
struct Process {
  unsigned int pid;
  unsigned long long used;
  unsigned int gpu_instance, compute_instance;
};

static const char* told(void) {
  const char* value = getenv("FAKE_NVML");
  return value == NULL ? "" : value;
}

int nvmlInit_v2(void) { return strcmp(told(), "broken") == 0 ? 9 : 0; }
int nvmlShutdown(void) { return 0; }
const char* nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : "Not Found"; }
int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  snprintf(text, length, "580.95");
  return 0;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  *device = (void*)1;
  if (strcmp(uuid, "GPU-fake") != 0) return 6;
  return strcmp(told(), "lost") == 0 ? 15 : 0;
}
int nvmlDeviceGetMemoryInfo(void* device, struct Memory* memory) {
  (void)device;
  const char* unseen = getenv("FAKE_NVML_UNSEEN_GIB");  // held by whom nobody can name
  memory->total = 80ULL << 30;
  memory->used = (unsigned long long)(unseen == NULL ? 0 : atoi(unseen)) << 30;
  memory->free = memory->total - memory->used;
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, struct Process* found) {
  (void)device;
  unsigned room = *count;
  *count = 0;
  for (const char* at = told(); *at != 0 && *count < room;) {
    char* end = NULL;
    found[*count].pid = (unsigned)strtoul(at, &end, 10);
    at = end + 1;  // over the colon
    found[*count].used = *at == ',' || *at == 0 ? ~0ULL : strtoull(at, &end, 10);
    if (*at != ',' && *at != 0) at = end;
    ++*count;
    if (*at == ',') ++at;
  }
  return 0;
}
