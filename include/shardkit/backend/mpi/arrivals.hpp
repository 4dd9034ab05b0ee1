// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <vector>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <shardkit/detail/concat.hpp>

namespace shardkit::mpi::detail {

/// Which processes of this host are making a World of all ranks, before they have exchanged anything: each has a
/// socket whose name says so, in Linux's name space without files, which ends with the process. It sees those alone
/// that the same launcher has started: with a shell in between, or in containers, it may see nobody.
class Arrivals {
  public:
    void open(std::size_t rank, std::size_t ranks) {
        ranks_ = ranks;
        const char* const job = std::getenv("PMIX_NAMESPACE");
        struct stat processes {};
        if (::stat("/proc/self/ns/pid", &processes) != 0) { return; }
        name_ = shardkit::detail::concat("shardkit.", processes.st_ino, ".", ::getppid(), ".",
                                         job == nullptr ? "" : job, ".");
        socket_ = socket_to(rank, ::bind);
    }
    /// Returns the ranks of those processes.
    std::vector<std::size_t> ranks() const {
        std::vector<std::size_t> here;
        for (std::size_t rank = 0; socket_ != none && rank < ranks_; ++rank) {
            const int socket = socket_to(rank, ::connect);  // a name that is bound to look at it would be there
            if (socket == none) { continue; }
            ::close(socket);
            here.push_back(rank);
        }
        return here;
    }
    void close() noexcept {
        if (socket_ != none) { ::close(socket_); }
        socket_ = none;
    }

  private:
    static constexpr int none = -1;
    /// Returns a socket that has a rank's name, or is connected to the one that has it; `none` where that fails.
    int socket_to([[maybe_unused]] std::size_t rank,
                  [[maybe_unused]] int (*bind_or_connect)(int, const sockaddr*, socklen_t)) const {
#if defined(__linux__)
        const std::string name = shardkit::detail::concat(name_, rank);
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        if (name.size() >= sizeof address.sun_path) { return none; }
        std::copy(name.begin(), name.end(), address.sun_path + 1);  // behind a zero
        const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
        const int made = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (made < 0) { return none; }
        if (bind_or_connect(made, reinterpret_cast<const sockaddr*>(&address), bytes) == 0) { return made; }
        ::close(made);
#endif
        return none;
    }
    std::string name_;
    std::size_t ranks_ = 0;
    int socket_ = none;
};

}  // namespace shardkit::mpi::detail
