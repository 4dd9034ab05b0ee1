// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <shardkit/backend/nccl/meeting.hpp>
#include <shardkit/backend/nccl/unique_id.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/descriptor.hpp>
#include <shardkit/detail/ticks.hpp>

namespace shardkit::nccl::detail {

/// A point in time at which something must have ended.
class Deadline {
  public:
    explicit Deadline(std::chrono::milliseconds from_now)
        : end_(Clock::now() + shardkit::detail::bounded_wait(from_now)) {}

    bool over() const { return Clock::now() >= end_; }
    /// Returns the remaining time for poll(2), at most `most`.
    int milliseconds(std::chrono::milliseconds most) const {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - Clock::now());
        return static_cast<int>(std::clamp(left, std::chrono::milliseconds(0), most).count());
    }

  private:
    using Clock = std::chrono::steady_clock;
    Clock::time_point end_;
};

/// A TCP socket that does not block.
using Socket = shardkit::detail::Descriptor;

inline Socket socket_for(const addrinfo& address) noexcept {
    return Socket(
        ::socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, address.ai_protocol));
}
/// Returns whether the socket becomes ready for `events` of poll(2) within a time.
inline bool is_ready(const Socket& socket, short events, int milliseconds) {
    pollfd asked{socket.get(), events, 0};
    return ::poll(&asked, 1, milliseconds) == 1;
}
/// Sends a record, which fits in the buffer of a new connection. Returns false if it could not be sent.
template <class Record>
bool send_record(const Socket& to, const Record& record) noexcept {
    return ::send(to.get(), &record, sizeof record, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof record);
}

struct FreeAddresses {
    void operator()(addrinfo* addresses) const noexcept { ::freeaddrinfo(addresses); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

/// Returns the addresses of a host and port; for an empty host, the addresses of this machine to listen at. None on
/// failure, with the reason in `error`.
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

/// Returns a socket that listens at all addresses of this machine, IPv4 and IPv6. None on failure, with the reason in
/// `error`.
inline Socket listen_at(std::uint16_t port, std::string& error) {
    const Addresses addresses = resolve("", port, error);
    // One IPv6 socket also accepts IPv4; without IPv6, an IPv4 socket is used.
    for (const int family : {AF_INET6, AF_INET}) {
        for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
            if (each->ai_family != family) { continue; }
            Socket made = socket_for(*each);
            const int yes = 1;
            const int no = 0;
            if (made) { ::setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes); }
            if (made && family == AF_INET6) { ::setsockopt(made.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no); }
            if (made && ::bind(made.get(), each->ai_addr, each->ai_addrlen) == 0 &&
                ::listen(made.get(), SOMAXCONN) == 0) {
                return made;
            }
            error = shardkit::detail::concat("cannot listen at port ", port, ": ", std::strerror(errno));
            if (errno == EADDRINUSE) { return Socket(); }
        }
    }
    return Socket();
}

/// Connects to an address. Returns none on failure, with the reason in `error`.
inline Socket connect_to(const addrinfo& address, const Deadline& deadline, std::chrono::milliseconds most,
                         std::string& error) {
    Socket made = socket_for(address);
    int code = made ? 0 : errno;
    if (made && ::connect(made.get(), address.ai_addr, address.ai_addrlen) != 0) { code = errno; }
    if (code == EINPROGRESS) {
        socklen_t size = sizeof code;
        code = ETIMEDOUT;
        if (is_ready(made, POLLOUT, deadline.milliseconds(most))) {
            ::getsockopt(made.get(), SOL_SOCKET, SO_ERROR, &code, &size);
        }
    }
    if (code == 0) { return made; }
    error = std::strerror(code);
    return Socket();
}

using Magic = std::array<char, 8>;
inline constexpr Magic meeting_magic{'s', 'h', 'a', 'r', 'd', 'k', 'i', 't'};

/// What a rank says to rank 0. It is sent as it lies in memory, and comes as one.
struct Hello {
    Magic magic = meeting_magic;
    std::uint32_t rank = 0;
    std::uint32_t size = 0;
    std::array<char, 64> token{};
};
/// What rank 0 answers.
struct Answer {
    Magic magic = meeting_magic;
    std::uint32_t agrees = 0;  ///< on the number of ranks
    UniqueId id{};             ///< if it does
};

inline Hello hello_of(const Meeting& meeting) {
    Hello hello{.rank = static_cast<std::uint32_t>(meeting.rank), .size = static_cast<std::uint32_t>(meeting.size)};
    std::copy_n(meeting.token.begin(), std::min(meeting.token.size(), hello.token.size()), hello.token.begin());
    return hello;
}
/// Returns whether a hello is of another rank of this job.
inline bool is_of(const Hello& hello, const Meeting& meeting) {
    const Hello own = hello_of(meeting);
    bool differs = hello.magic != own.magic;  // compares all bytes, so that the time reveals nothing about the token
    for (std::size_t i = 0; i < own.token.size(); ++i) { differs |= hello.token[i] != own.token[i]; }
    return !differs && hello.rank != 0 && hello.rank < std::max(hello.size, own.size);
}

[[noreturn]] inline void throw_at(const Meeting& meeting, std::string_view what, SourceLocation where) {
    throw CommError(
        "nccl", "rendezvous",
        shardkit::detail::concat("rank ", meeting.rank, " at ", meeting.host, ":", meeting.port, ": ", what), where);
}

/// Answers until all other ranks have the id, as rank 0. A stranger gets no answer, and holds nobody up.
inline void serve(const Meeting& meeting, const UniqueId& id, std::chrono::milliseconds timeout,
                  SourceLocation where) {
    constexpr std::chrono::milliseconds look_again{200};
    constexpr std::size_t most_guests = 4096;
    std::string error;
    const Socket listener = listen_at(meeting.port, error);
    if (!listener) { throw_at(meeting, error, where); }
    const Deadline deadline(timeout);
    std::vector<Socket> guests;
    std::vector<std::size_t> missing(meeting.size - 1);
    std::iota(missing.begin(), missing.end(), std::size_t{1});
    while (!missing.empty()) {
        if (deadline.over()) {
            std::string ranks;
            for (const std::size_t rank : missing) {
                shardkit::detail::append(ranks, ranks.empty() ? "rank " : ", ", rank);
            }
            throw_at(meeting, shardkit::detail::concat(ranks, " did not come within ", timeout.count(), " ms"),
                     where);
        }
        std::vector<pollfd> asked{{listener.get(), POLLIN, 0}};
        for (const Socket& guest : guests) { asked.push_back({guest.get(), POLLIN, 0}); }
        static_cast<void>(::poll(asked.data(), asked.size(), deadline.milliseconds(look_again)));
        for (std::size_t i = guests.size(); i-- > 0;) {
            if (asked[i + 1].revents == 0) { continue; }
            const Socket guest = std::exchange(guests[i], std::move(guests.back()));
            guests.pop_back();
            Hello hello;
            const ssize_t received = ::recv(guest.get(), &hello, sizeof hello, 0);
            if (received != static_cast<ssize_t>(sizeof hello) || !is_of(hello, meeting)) { continue; }
            const bool agrees = hello.size == meeting.size;
            if (send_record(guest, Answer{.agrees = agrees, .id = agrees ? id : UniqueId()}) && agrees) {
                std::erase(missing, hello.rank);
            }
        }
        while (Socket made{::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)}) {
            if (guests.size() == most_guests) { guests.erase(guests.begin()); }
            guests.push_back(std::move(made));
        }
    }
}

/// Tries once to get the id. Returns none on failure, with the reason in `error`.
inline std::optional<UniqueId> ask(const Meeting& meeting, const addrinfo& address, const Deadline& deadline,
                                   std::string& error, SourceLocation where) {
    constexpr std::chrono::milliseconds patience{10000};
    std::string refused;
    const Socket socket = connect_to(address, deadline, patience, refused);
    if (!socket) {
        if (!deadline.over()) { error = refused; }
        return std::nullopt;
    }
    Answer answer;
    ssize_t received = 0;
    if (send_record(socket, hello_of(meeting))) {
        if (!is_ready(socket, POLLIN, deadline.milliseconds(patience))) {
            if (!deadline.over()) { error = "no answer"; }
            return std::nullopt;
        }
        received = ::recv(socket.get(), &answer, sizeof answer, 0);
    }
    if (received <= 0) {
        error = "it was closed without an answer: another job's, or the token is another one";
        return std::nullopt;
    }
    if (received != static_cast<ssize_t>(sizeof answer) || answer.magic != meeting_magic) {
        error = "another program answers";
        return std::nullopt;
    }
    if (answer.agrees != 1) {
        throw_at(meeting, shardkit::detail::concat("rank 0 expects another number of ranks than ", meeting.size),
                 where);
    }
    return answer.id;
}

/// The side of the other ranks: asks until there is an answer.
inline UniqueId fetch(const Meeting& meeting, std::chrono::milliseconds timeout, SourceLocation where) {
    constexpr std::chrono::milliseconds longest_rest{500};
    const Deadline deadline(timeout);
    std::string error = "no try";
    for (std::chrono::milliseconds rest{5};; rest = std::min(2 * rest, longest_rest)) {
        const Addresses addresses = resolve(meeting.host, meeting.port, error);
        for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
            if (const auto id = ask(meeting, *each, deadline, error, where)) { return *id; }
        }
        if (deadline.over()) {
            throw_at(meeting,
                     shardkit::detail::concat("rank 0 gave no id within ", timeout.count(), " ms (", error, ")"),
                     where);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(deadline.milliseconds(rest)));
    }
}

}  // namespace shardkit::nccl::detail

namespace shardkit::nccl SHARDKIT_FACE {

SHARDKIT_CORE_INLINE UniqueId meet(const Meeting& meeting, std::chrono::milliseconds timeout, SourceLocation where) {
    if (meeting.token.size() > sizeof detail::Hello::token) {
        throw_invalid_argument(where, "nccl::Meeting: a token of ", meeting.token.size(), " bytes, expected at most ",
                               sizeof detail::Hello::token);
    }
    if (meeting.rank != 0) { return detail::fetch(meeting, timeout, where); }
    const UniqueId id = UniqueId::create(where);
    if (meeting.size > 1) { detail::serve(meeting, id, timeout, where); }
    return id;
}

}  // namespace SHARDKIT_FACE
