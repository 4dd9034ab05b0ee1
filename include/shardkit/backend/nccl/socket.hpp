// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <shardkit/detail/bounded_wait.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::nccl::detail {

/// When something must be over.
class Deadline {
  public:
    explicit Deadline(std::chrono::milliseconds from_now)
        : end_(Clock::now() + shardkit::detail::bounded_wait(from_now)) {}

    bool over() const { return Clock::now() >= end_; }
    /// For poll(2): what is left, at most so much.
    int milliseconds(std::chrono::milliseconds most) const {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - Clock::now());
        return static_cast<int>(std::clamp(left, std::chrono::milliseconds(0), most).count());
    }

  private:
    using Clock = std::chrono::steady_clock;
    Clock::time_point end_;
};

/// The owner of a TCP socket that does not block. Move-only.
class Socket {
  public:
    Socket() noexcept = default;
    /// Takes over a descriptor; one below 0 is none.
    explicit Socket(int descriptor) noexcept : descriptor_(descriptor) {
        if (descriptor_ >= 0) { static_cast<void>(::fcntl(descriptor_, F_SETFD, FD_CLOEXEC)); }
        if (descriptor_ >= 0) { static_cast<void>(::fcntl(descriptor_, F_SETFL, O_NONBLOCK)); }
    }
    Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
    Socket& operator=(Socket&& other) noexcept {
        std::swap(descriptor_, other.descriptor_);
        return *this;
    }
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;
    ~Socket() {
        if (descriptor_ >= 0) { static_cast<void>(::close(descriptor_)); }
    }

    explicit operator bool() const noexcept { return descriptor_ >= 0; }
    int native() const noexcept { return descriptor_; }

    /// Whether it can be read or written, as `events` of poll(2) ask, before the deadline.
    bool ready(short events, const Deadline& deadline, std::chrono::milliseconds most) const {
        pollfd asked{descriptor_, events, 0};
        return ::poll(&asked, 1, deadline.milliseconds(most)) == 1;
    }
    /// Few bytes, which fit into the buffer of a new connection. False: they could not be sent.
    bool send(std::span<const std::byte> bytes) const noexcept {
        return ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
    }
    enum class Received { all, some, nothing_more };
    /// Reads on until `bytes` is full; `have` counts those that are there.
    Received receive(std::span<std::byte> bytes, std::size_t& have) const noexcept {
        const ssize_t count = ::recv(descriptor_, bytes.data() + have, bytes.size() - have, 0);
        if (count > 0) { have += static_cast<std::size_t>(count); }
        if (have == bytes.size()) { return Received::all; }
        const bool later = count > 0 || (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
        return later ? Received::some : Received::nothing_more;
    }

  private:
    int descriptor_ = -1;
};

struct FreeAddresses {
    void operator()(addrinfo* addresses) const noexcept { ::freeaddrinfo(addresses); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

/// The addresses of a host and port; for an empty host those of this machine to listen at. None, and `error` says
/// why.
inline Addresses resolve(const std::string& host, std::uint16_t port, std::string& error) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV | (host.empty() ? AI_PASSIVE : 0);
    addrinfo* found = nullptr;
    const int code =
        ::getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (code != 0) { error = shardkit::detail::concat("the name ", host, ": ", ::gai_strerror(code)); }
    return Addresses(code == 0 ? found : nullptr);
}

/// A socket that listens at all addresses of this machine, IPv4's and IPv6's. None, and `error` says why.
inline Socket listen_at(std::uint16_t port, std::string& error) {
    const Addresses addresses = resolve("", port, error);
    // One socket of IPv6 takes IPv4's as well; without IPv6 there is IPv4's.
    for (const int family : {AF_INET6, AF_INET}) {
        for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
            if (each->ai_family != family) { continue; }
            Socket made(::socket(each->ai_family, each->ai_socktype, each->ai_protocol));
            const int yes = 1;
            const int no = 0;
            if (made) { ::setsockopt(made.native(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes); }
            if (made && family == AF_INET6) {
                ::setsockopt(made.native(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
            }
            if (made && ::bind(made.native(), each->ai_addr, each->ai_addrlen) == 0 &&
                ::listen(made.native(), SOMAXCONN) == 0) {
                return made;
            }
            error = shardkit::detail::concat("cannot listen at port ", port, ": ", std::strerror(errno));
            if (errno == EADDRINUSE) { return Socket(); }
        }
    }
    return Socket();
}

/// A connection to an address. None, and `error` says why.
inline Socket connect_to(const addrinfo& address, const Deadline& deadline, std::chrono::milliseconds most,
                         std::string& error) {
    Socket made(::socket(address.ai_family, address.ai_socktype, address.ai_protocol));
    int code = made ? 0 : errno;
    if (made && ::connect(made.native(), address.ai_addr, address.ai_addrlen) != 0) { code = errno; }
    if (code == EINPROGRESS) {
        socklen_t size = sizeof code;
        code = ETIMEDOUT;
        if (made.ready(POLLOUT, deadline, most)) { ::getsockopt(made.native(), SOL_SOCKET, SO_ERROR, &code, &size); }
    }
    if (code == 0) { return made; }
    error = std::strerror(code);
    return Socket();
}

}  // namespace shardkit::nccl::detail
