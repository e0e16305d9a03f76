// SPDX-License-Identifier: MIT
#include "engine/io/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <system_error>

#include "engine/core/check.h"

namespace ab {
namespace {

/// The owner of the lock, and the text of the file: "host node7 process 4711 job 55", and of a job that was started again
/// " restart 1".
struct Owner {
  std::string host;
  pid_t process = 0;
  std::string job = "none";
  int restart = 0;

  std::string str() const {
    return fmt::format("host {} process {} job {}{}", host, process, job,
                       restart > 0 ? fmt::format(" restart {}", restart) : "");
  }
};

Owner this_process() {
  Owner owner;
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  owner.host = host;
  owner.process = ::getpid();
  for (const char* variable : {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"})
    if (const char* job = std::getenv(variable)) owner.job = job;
  if (const char* restart = std::getenv("SLURM_RESTART_COUNT")) owner.restart = std::atoi(restart);
  return owner;
}

/// Whether the owner was `self`'s job before that was requeued. Slurm counts how often; then an owner with the same count
/// is another step of the job, and may be running.
bool was_this_job(const Owner& owner, const Owner& self) {
  if (owner.job == "none" || owner.job != self.job) return false;
  return std::getenv("SLURM_JOB_ID") == nullptr || owner.restart != self.restart;
}

/// The owner by the lock file; an empty host when it says nothing, as in the moment before it is written.
Owner read_owner(int descriptor) {
  char text[512] = "";
  if (::pread(descriptor, text, sizeof text - 1, 0) <= 0) return {};
  Owner owner;
  std::string word;
  std::istringstream(text) >> word >> owner.host >> word >> owner.process >> word >> owner.job >> word >> owner.restart;
  return owner;
}

/// How long ago the file was renewed, by the clock of its file system: that of this host may be another. A time in the
/// future, of a clock that has been set back, counts as long: an owner that runs would have renewed it.
std::chrono::seconds silence_of(int descriptor, const std::string& path) {
  struct stat lock {
  }, now{};
  const std::string fresh = fmt::format("{}.{}", path, ::getpid());
  const int file = ::open(fresh.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  const bool known =
      file >= 0 && ::futimens(file, nullptr) == 0 && ::fstat(file, &now) == 0 && ::fstat(descriptor, &lock) == 0;
  if (file >= 0) ::close(file), ::unlink(fresh.c_str());
  return std::chrono::seconds(known ? std::abs(now.st_mtim.tv_sec - lock.st_mtim.tv_sec) : 0);
}

/// Whether an owner who holds no flock that we can see may still be running.
bool may_be_running(const Owner& owner, const Owner& self, bool flock_works, std::chrono::seconds silence) {
  if (owner.host.empty() || was_this_job(owner, self)) return false;
  if (silence >= RunLock::kPatience) return false;
  if (owner.host != self.host) return true;
  return !flock_works && owner.process != self.process && (::kill(owner.process, 0) == 0 || errno == EPERM);
}

/// Opens the lock file, and makes it if there is none: then nobody else did.
int open_lock(const std::string& path, bool& is_new) {
  for (int attempts = 0;; ++attempts) {
    int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    is_new = descriptor >= 0;
    if (!is_new && errno == EEXIST) descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (descriptor >= 0) return descriptor;
    // ENOENT: its owner removed it between the two calls.
    AB_CHECK(errno == ENOENT && attempts < 10, "cannot lock the run with {}: {}", path, std::strerror(errno));
  }
}

/// Whether the file is still the one at `path`: its last owner may have removed it since it was opened.
bool is_at(int descriptor, const std::string& path) {
  struct stat opened {
  }, named{};
  return ::fstat(descriptor, &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

}  // namespace

RunLock::RunLock(const std::string& folder, std::chrono::milliseconds renewal) : path_(folder + "/run.lock") {
  bool is_new = false, locked = false;
  do {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = open_lock(path_, is_new);
    locked = ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0;
  } while (locked && !is_at(descriptor_, path_));
  const bool flock_works = locked || errno == EWOULDBLOCK;

  const Owner self = this_process(), owner = read_owner(descriptor_);
  const bool elsewhere = !owner.host.empty() && owner.host != self.host;
  const std::chrono::seconds silence = silence_of(descriptor_, path_);
  const bool taken = flock_works && !locked;
  if (taken || (!is_new && may_be_running(owner, self, flock_works, silence))) {
    ::close(descriptor_);
    const std::string sign = elsewhere ? fmt::format(", last sign of life {} s ago, succeeded after {}",
                                                     silence.count(), std::chrono::seconds(kPatience).count())
                                       : "";
    throw Error(
        ErrorKind::config,
        fmt::format("the folder {} is in use by another run ({}{}): give this one a folder of its own, or remove "
                    "{} if that run has ended",
                    folder, owner.str(), sign, path_));
  }
  if (!is_new && silence >= kPatience) {
    // A file of its own, so that an owner who was only frozen neither renews nor removes it. The old one stays locked until
    // then: of several successors one gets here.
    const int old = descriptor_;
    ::unlink(path_.c_str());
    descriptor_ = open_lock(path_, is_new);
    (void)::flock(descriptor_, LOCK_EX | LOCK_NB);
    ::close(old);
    if (!is_new) ::close(descriptor_);
    AB_CHECK(is_new, "another run has taken {} over meanwhile; give the command again", folder);
  }
  const std::string text = self.str() + "\n";
  const bool written = ::ftruncate(descriptor_, 0) == 0 &&
                       ::pwrite(descriptor_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  if (!written) {
    const std::string reason = std::strerror(errno);
    ::close(descriptor_);
    throw Error(ErrorKind::config, fmt::format("cannot lock the run with {}: {}", path_, reason));
  }
  try {
    renews_ = std::thread([this, renewal] { renew(renewal); });
  } catch (const std::system_error&) {
    // The system has no room for a thread: the run goes without, and other hosts may take it for dead in ten minutes.
  }
}

/// A disk that does not answer, or a lock that somebody removed, costs the sign of life and not the run.
void RunLock::renew(std::chrono::milliseconds renewal) {
  std::unique_lock lock(mutex_);
  while (!ending_.wait_for(lock, renewal, [&] { return ends_; })) ::futimens(descriptor_, nullptr);
}

RunLock::~RunLock() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  ending_.notify_all();
  if (renews_.joinable()) renews_.join();
  if (is_at(descriptor_, path_)) ::unlink(path_.c_str());
  ::close(descriptor_);
}

}  // namespace ab
