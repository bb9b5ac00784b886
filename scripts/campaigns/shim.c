/* A library to preload. Below one folder, the file system seems to be full from some write on, or to have no locks. Its
   locks are those of NFS, which refuses an exclusive one of a file that is open for reading only.

   Every call that needs room counts: write, pwrite, writev, fwrite, and making a file or a folder. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static char place[PATH_MAX];
static long room = -1; /* calls that still succeed; -1: all */
static int locks = 1;

/* Spoil the file system below `folder`: only `calls_with_room` more calls find room (-1: all do), and flock works or
   not. */
void spoil(const char *folder, int calls_with_room, int with_locks) {
  snprintf(place, sizeof place, "%s", folder);
  room = calls_with_room;
  locks = with_locks;
}

static int below(const char *path) { return place[0] && !strncmp(path, place, strlen(place)); }

static int concerns(int descriptor) {
  char link[64], path[PATH_MAX];
  if (!place[0]) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return below(path);
}

static int full(void) {
  if (room < 0 || room-- > 0) return 0;
  room = 0;
  errno = ENOSPC;
  return 1;
}

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

ssize_t write(int descriptor, const void *buffer, size_t size) {
  static ssize_t (*own)(int, const void *, size_t);
  if (!own) own = real("write");
  return concerns(descriptor) && full() ? -1 : own(descriptor, buffer, size);
}

ssize_t pwrite64(int descriptor, const void *buffer, size_t size, off64_t offset) {
  static ssize_t (*own)(int, const void *, size_t, off64_t);
  if (!own) own = real("pwrite64");
  return concerns(descriptor) && full() ? -1 : own(descriptor, buffer, size, offset);
}

ssize_t pwrite(int descriptor, const void *buffer, size_t size, off_t offset) {
  return pwrite64(descriptor, buffer, size, offset);
}

ssize_t writev(int descriptor, const struct iovec *parts, int count) {
  static ssize_t (*own)(int, const struct iovec *, int);
  if (!own) own = real("writev");
  return concerns(descriptor) && full() ? -1 : own(descriptor, parts, count);
}

size_t fwrite(const void *buffer, size_t size, size_t count, FILE *file) {
  static size_t (*own)(const void *, size_t, size_t, FILE *);
  if (!own) own = real("fwrite");
  return concerns(fileno(file)) && full() ? 0 : own(buffer, size, count, file);
}

static int makes(int directory, const char *path, int flags) {
  char whole[PATH_MAX];
  if (!place[0] || !(flags & O_CREAT)) return 0;
  if (path[0] == '/' || directory != AT_FDCWD) snprintf(whole, sizeof whole, "%s", path);
  else if (getcwd(whole, sizeof whole)) snprintf(whole + strlen(whole), sizeof whole - strlen(whole), "/%s", path);
  struct stat status;
  return below(whole) && stat(whole, &status);
}

#define OPEN(name)                                                     \
  int name(const char *path, int flags, ...) {                         \
    static int (*own)(const char *, int, ...);                         \
    if (!own) own = real(#name);                                       \
    va_list more;                                                      \
    va_start(more, flags);                                             \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
    va_end(more);                                                      \
    return makes(AT_FDCWD, path, flags) && full() ? -1 : own(path, flags, mode); \
  }
OPEN(open)
OPEN(open64)

int mkdir(const char *path, mode_t mode) {
  static int (*own)(const char *, mode_t);
  if (!own) own = real("mkdir");
  return makes(AT_FDCWD, path, O_CREAT) && full() ? -1 : own(path, mode);
}

int flock(int descriptor, int operation) {
  static int (*own)(int, int);
  if (!own) own = real("flock");
  if (!concerns(descriptor)) return own(descriptor, operation);
  int readable = (fcntl(descriptor, F_GETFL) & O_ACCMODE) != O_WRONLY;
  int writable = (fcntl(descriptor, F_GETFL) & O_ACCMODE) != O_RDONLY;
  if (!locks) errno = ENOLCK;
  else if ((operation & LOCK_EX && !writable) || (operation & LOCK_SH && !readable)) errno = EBADF;
  else return own(descriptor, operation);
  return -1;
}
