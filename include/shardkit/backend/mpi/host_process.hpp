// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdint>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <shardkit/detail/descriptor.hpp>

namespace shardkit::mpi::detail {

/// Another process of this host, whose end this one can see, whether they share memory or not. Move-only.
class HostProcess {
  public:
    /// Watches no process.
    HostProcess() noexcept = default;
    explicit HostProcess(std::uint64_t number) noexcept : number_(number) {
#if defined(__linux__)
        handle_ =
            shardkit::detail::Descriptor(static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(number), 0U)));
        gone_ = !handle_ && errno == ESRCH;
#endif
    }
    /// Returns the number of this process itself.
    static std::uint64_t own() noexcept { return static_cast<std::uint64_t>(getpid()); }

    std::uint64_t number() const noexcept { return number_; }
    /// Returns whether its end can be seen.
    explicit operator bool() const noexcept { return static_cast<bool>(handle_); }
    bool ended() const noexcept {
        pollfd look{handle_.get(), POLLIN, 0};
        return gone_ || (handle_ && poll(&look, 1, 0) == 1);
    }

  private:
    std::uint64_t number_ = 0;
    shardkit::detail::Descriptor handle_;
    bool gone_ = false;
};

}  // namespace shardkit::mpi::detail
