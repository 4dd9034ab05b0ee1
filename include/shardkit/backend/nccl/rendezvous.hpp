// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <fcntl.h>
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
#include <optional>
#include <span>
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

/// Owns a TCP socket that does not block. Move-only.
class Socket {
  public:
    Socket() noexcept = default;
    /// Takes over a descriptor; a negative one means none.
    explicit Socket(int descriptor) noexcept : descriptor_(descriptor) {
        if (!descriptor_) { return; }
        static_cast<void>(::fcntl(native(), F_SETFD, FD_CLOEXEC));
        static_cast<void>(::fcntl(native(), F_SETFL, O_NONBLOCK));
    }
    explicit operator bool() const noexcept { return static_cast<bool>(descriptor_); }
    int native() const noexcept { return descriptor_.get(); }

    /// Returns whether the socket becomes ready for `events` of poll(2) before the deadline, and within `most`.
    bool ready(short events, const Deadline& deadline, std::chrono::milliseconds most) const {
        pollfd asked{native(), events, 0};
        return ::poll(&asked, 1, deadline.milliseconds(most)) == 1;
    }
    /// Sends few bytes, which fit in the buffer of a new connection. Returns false if they could not be sent.
    bool send(std::span<const std::byte> bytes) const noexcept {
        return ::send(native(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
    }
    enum class Received { all, some, nothing_more };
    /// Continues to read until `bytes` is full; `have` is the number of bytes received so far.
    Received receive(std::span<std::byte> bytes, std::size_t& have) const noexcept {
        const ssize_t count = ::recv(native(), bytes.data() + have, bytes.size() - have, 0);
        if (count > 0) { have += static_cast<std::size_t>(count); }
        if (have == bytes.size()) { return Received::all; }
        const bool later = count > 0 || (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
        return later ? Received::some : Received::nothing_more;
    }

  private:
    shardkit::detail::Descriptor descriptor_;
};

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

/// Connects to an address. Returns none on failure, with the reason in `error`.
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

inline constexpr std::string_view meeting_magic = "shardkit";
inline constexpr std::size_t token_bytes = 64;
/// The bytes of a hello: magic, rank, number of ranks, token.
inline constexpr std::size_t hello_bytes = 8 + 4 + 4 + token_bytes;
/// The bytes of an answer: magic, whether rank 0 agrees on the number of ranks, the id.
inline constexpr std::size_t answer_bytes = 8 + 1 + UniqueId::size;
using Hello = std::array<std::byte, hello_bytes>;
using Answer = std::array<std::byte, answer_bytes>;

inline void write_number(std::byte* to, std::size_t number) {
    for (std::size_t i = 0; i < 4; ++i) { to[i] = static_cast<std::byte>(number >> (8 * (3 - i)) & 0xffU); }
}
inline std::size_t read_number(const std::byte* from) {
    std::size_t number = 0;
    for (std::size_t i = 0; i < 4; ++i) { number = number << 8U | std::to_integer<std::size_t>(from[i]); }
    return number;
}

inline Hello hello_of(const Meeting& meeting) {
    Hello hello{};
    std::memcpy(hello.data(), meeting_magic.data(), meeting_magic.size());
    write_number(hello.data() + 8, meeting.rank);
    write_number(hello.data() + 12, meeting.size);
    std::memcpy(hello.data() + 16, meeting.token.data(), std::min(meeting.token.size(), token_bytes));
    return hello;
}
/// Returns the rank that a hello comes from; none if it is not of this job.
inline std::optional<std::size_t> rank_of(const Hello& hello, const Meeting& meeting) {
    const Hello own = hello_of(meeting);
    std::byte difference{};  // compares all bytes, so that the time reveals nothing about the token
    for (std::size_t i = 0; i < hello.size(); ++i) {
        if (i < 8 || i >= 16) { difference |= hello[i] ^ own[i]; }
    }
    const std::size_t rank = read_number(hello.data() + 8);
    if (difference != std::byte{} || rank == 0 || rank >= std::max(read_number(hello.data() + 12), meeting.size)) {
        return std::nullopt;
    }
    return rank;
}

[[noreturn]] inline void throw_at(const Meeting& meeting, std::string_view what, SourceLocation where) {
    throw CommError(
        "nccl", "rendezvous",
        shardkit::detail::concat("rank ", meeting.rank, " at ", meeting.host, ":", meeting.port, ": ", what), where);
}

/// Rank 0's side: answers until all others have the id.
class Host {
  public:
    Host(const Meeting& meeting, const UniqueId& id, SourceLocation where)
        : meeting_(meeting), served_(meeting.size) {
        std::string error;
        listener_ = listen_at(meeting.port, error);
        if (!listener_) { throw_at(meeting, error, where); }
        std::memcpy(answer_.data(), meeting_magic.data(), meeting_magic.size());
        std::ranges::copy(id.bytes(), answer_.begin() + 9);
        served_[0] = true;
    }

    void serve(std::chrono::milliseconds timeout, SourceLocation where) {
        const Deadline deadline(timeout);
        while (!std::ranges::all_of(served_, [](bool served) { return served; })) {
            if (deadline.over()) {
                throw_at(
                    meeting_,
                    shardkit::detail::concat("rank ", missing(), " did not come within ", timeout.count(), " ms"),
                    where);
            }
            std::vector<pollfd> asked{{listener_.native(), POLLIN, 0}};
            for (const Guest& guest : guests_) { asked.push_back({guest.socket.native(), POLLIN, 0}); }
            static_cast<void>(::poll(asked.data(), asked.size(), deadline.milliseconds(look_again)));
            std::erase_if(guests_, [&](Guest& guest) { return is_done(guest); });
            accept();
        }
    }

  private:
    static constexpr std::chrono::milliseconds look_again{200};
    static constexpr std::chrono::milliseconds patience{5000};  // for a connection that sends nothing
    static constexpr std::size_t most_guests = 4096;

    struct Guest {
        Socket socket;
        Deadline deadline{patience};
        Hello hello{};
        std::size_t have = 0;
    };

    void accept() {
        while (guests_.size() < most_guests) {
            Socket socket(::accept(listener_.native(), nullptr, nullptr));
            if (!socket) { return; }
            guests_.push_back(Guest{std::move(socket)});
        }
    }
    /// Reads a guest's hello, and answers once it is complete. A stranger gets no answer.
    bool is_done(Guest& guest) {
        const Socket::Received received = guest.socket.receive(guest.hello, guest.have);
        if (received != Socket::Received::all) {
            return received == Socket::Received::nothing_more || guest.deadline.over();
        }
        const std::optional<std::size_t> rank = rank_of(guest.hello, meeting_);
        if (!rank) { return true; }
        const bool agrees = read_number(guest.hello.data() + 12) == meeting_.size;
        Answer answer = answer_;
        answer[8] = std::byte{agrees};
        if (!agrees) { std::fill(answer.begin() + 9, answer.end(), std::byte{}); }
        if (guest.socket.send(answer) && agrees) { served_[*rank] = true; }
        return true;
    }
    std::string missing() const {
        std::string text;
        for (std::size_t rank = 0; rank < served_.size(); ++rank) {
            if (!served_[rank]) { shardkit::detail::append(text, text.empty() ? "" : ", ", rank); }
        }
        return text;
    }

    const Meeting& meeting_;
    Socket listener_;
    Answer answer_{};
    std::vector<bool> served_;
    std::vector<Guest> guests_;
};

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
    const Deadline own(patience);
    Answer answer{};
    std::size_t have = 0;
    auto received = socket.send(hello_of(meeting)) ? Socket::Received::some : Socket::Received::nothing_more;
    while (received == Socket::Received::some) {
        static_cast<void>(socket.ready(POLLIN, deadline, patience));
        received = socket.receive(answer, have);
        if (received == Socket::Received::some && own.over()) { error = "no answer"; }
        if (received == Socket::Received::some && (own.over() || deadline.over())) { return std::nullopt; }
    }
    if (received == Socket::Received::nothing_more) {
        error = "it was closed without an answer: another job's, or the token is another one";
        return std::nullopt;
    }
    if (std::memcmp(answer.data(), meeting_magic.data(), meeting_magic.size()) != 0) {
        error = "another program answers";
        return std::nullopt;
    }
    if (answer[8] != std::byte{1}) {
        throw_at(meeting, shardkit::detail::concat("rank 0 expects another number of ranks than ", meeting.size),
                 where);
    }
    return UniqueId::from_bytes(std::span<const std::byte>(answer).last(UniqueId::size), where);
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
    if (meeting.token.size() > detail::token_bytes) {
        throw_invalid_argument(where, "nccl::Meeting: a token of ", meeting.token.size(), " bytes, expected at most ",
                               detail::token_bytes);
    }
    if (meeting.rank != 0) { return detail::fetch(meeting, timeout, where); }
    const UniqueId id = UniqueId::create(where);
    if (meeting.size > 1) { detail::Host(meeting, id, where).serve(timeout, where); }
    return id;
}

}  // namespace SHARDKIT_FACE
