// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <shardkit/backend/shared/piece_list.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/descriptor.hpp>

// Memory that processes of one host share. MPI's own windows (MPI_Win_allocate_shared) do not fit: all ranks must
// make them together, while each rank makes its own buffers, and they are files with names: a job whose processes are
// all killed leaves them in /dev/shm. A memory file has no name, and ends with the last process that has it.

namespace shardkit::mpi::detail {

using shardkit::detail::Descriptor;

/// Maps a file's bytes to addresses of this process; empty if that failed. Move-only.
class Mapping {
  public:
    Mapping() noexcept = default;
    Mapping(const Descriptor& file, std::size_t bytes) noexcept {
        void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
        if (at == MAP_FAILED) { return; }
#if defined(__linux__)
        // A core file would contain every rank's memory, including pages that nobody has touched.
        madvise(at, bytes, MADV_DONTDUMP);
#endif
        data_ = {static_cast<std::byte*>(at), Unmap{bytes}};
    }
    std::byte* data() const noexcept { return data_.get(); }
    std::size_t bytes() const noexcept { return data_ == nullptr ? 0 : data_.get_deleter().bytes; }
    explicit operator bool() const noexcept { return data_ != nullptr; }

  private:
    struct Unmap {
        std::size_t bytes;
        void operator()(std::byte* data) const noexcept { munmap(data, bytes); }
    };
    std::unique_ptr<std::byte, Unmap> data_;
};

/// Where other processes of the host find a memory window, and where it is in its own process.
struct WindowAddress {
    std::uint64_t descriptor = 0;
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    std::uint64_t bytes = 0;  ///< 0: there is no window
    std::uint64_t begin = 0;
};

/// The memory of one rank that its host's processes may map, allocated in whole pages. Its addresses are reserved at
/// once, as many as the host has memory. Pages are taken when a piece is allocated, so that no later access fails,
/// and returned with it. The file is sealed: no process can shorten it while others read it.
class Window {
  public:
    /// Makes a memory window of at most `most` bytes; returns null if the system has no such memory. `shares` is the
    /// number of windows that a process maps.
    static std::shared_ptr<Window> make([[maybe_unused]] std::size_t shares, [[maybe_unused]] std::size_t most) {
#if defined(__linux__)
        const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        std::size_t bytes = std::min(most / page, static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES))) * page;
        // Half of the smallest address space of a process with 64-bit addresses, for all windows together.
        bytes = std::min(bytes, (std::size_t{1} << 46U) / shares / page * page);
        rlimit files{};
        if (getrlimit(RLIMIT_FSIZE, &files) == 0 && files.rlim_cur < bytes) { return nullptr; }
        Descriptor file(memfd_create("shardkit", MFD_CLOEXEC | MFD_ALLOW_SEALING));
        if (!file || ftruncate(file.get(), static_cast<off_t>(bytes)) != 0 ||
            fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
            return nullptr;
        }
        Mapping mapping(file, bytes);
        if (!mapping) { return nullptr; }
        return std::make_shared<Window>(std::move(file), std::move(mapping), page);
#else
        return nullptr;
#endif
    }
    Window(Descriptor file, Mapping mapping, std::size_t page)
        : file_(std::move(file)), mapping_(std::move(mapping)), page_(page), pieces_(mapping_.bytes()) {}

    WindowAddress address() const noexcept {
        struct stat status {};
        if (fstat(file_.get(), &status) != 0) { return {}; }
        return {static_cast<std::uint64_t>(file_.get()), static_cast<std::uint64_t>(status.st_dev),
                static_cast<std::uint64_t>(status.st_ino), mapping_.bytes(),
                reinterpret_cast<std::uintptr_t>(mapping_.data())};
    }
    std::byte* data() const noexcept { return mapping_.data(); }
    std::size_t bytes() const noexcept { return mapping_.bytes(); }

    /// Allocates `bytes` > 0 zeroed bytes; null if the window or the host has no space for them.
    void* take([[maybe_unused]] std::size_t bytes) {
#if defined(__linux__)
        if (bytes > mapping_.bytes()) { return nullptr; }
        const std::size_t whole = (bytes + page_ - 1) / page_ * page_;
        const std::lock_guard lock(mutex_);
        const auto offset = pieces_.take(whole);
        if (!offset) { return nullptr; }
        int failed = 0;
        do {
            failed = fallocate(file_.get(), 0, static_cast<off_t>(*offset), static_cast<off_t>(whole));
        } while (failed != 0 && errno == EINTR);
        if (failed != 0) {
            release(*offset);
            return nullptr;
        }
        // They are zero already; writing them puts them near this thread, and into its page table before their use.
        std::memset(mapping_.data() + *offset, 0, bytes);
        return mapping_.data() + *offset;
#else
        return nullptr;
#endif
    }
    /// Allocates memory likewise for a buffer, which is counted and returned later.
    void* take_buffer(std::size_t bytes) {
        void* const memory = take(bytes);
        if (memory == nullptr) { return nullptr; }
        const std::lock_guard lock(mutex_);
        held_ += bytes;
        most_held_ = std::max(most_held_, held_);
        return memory;
    }
    /// Frees a buffer's memory.
    /// @pre `memory` came from `take_buffer(bytes)`
    void give_back(const void* memory, std::size_t bytes) noexcept {
        const std::lock_guard lock(mutex_);
        release(static_cast<std::size_t>(static_cast<const std::byte*>(memory) - mapping_.data()));
        held_ -= bytes;
    }

    /// Returns the peak bytes of all buffers.
    std::size_t most_held() const {
        const std::lock_guard lock(mutex_);
        return most_held_;
    }

  private:
    void release(std::size_t offset) noexcept {
        [[maybe_unused]] const std::size_t bytes = pieces_.give_back(offset);
#if defined(__linux__)
        fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                  static_cast<off_t>(bytes));
#endif
    }

    Descriptor file_;
    Mapping mapping_;
    std::size_t page_;
    mutable std::mutex mutex_;  // guards the following members
    shardkit::detail::PieceList pieces_;
    std::size_t held_ = 0;
    std::size_t most_held_ = 0;
};

/// The memory window of a process of this host, as this one sees it.
class HostPeer {
  public:
    HostPeer() noexcept = default;
    /// Makes the entry of this process itself. @pre the window outlives it
    explicit HostPeer(const Window& own) noexcept
        : data_(own.data()), bytes_(own.bytes()), begin_(reinterpret_cast<std::uintptr_t>(own.data())) {}
    /// Opens the window of the process with that number. The result is empty if that is not possible: the processes
    /// may not inspect each other, or have numbers of different namespaces.
    HostPeer(std::uint64_t process, const WindowAddress& address) : begin_(address.begin) {
        if (address.bytes == 0) { return; }
        const std::string path = shardkit::detail::concat("/proc/", process, "/fd/", address.descriptor);
        struct stat found {};
        if (stat(path.c_str(), &found) != 0 || found.st_dev != address.device || found.st_ino != address.inode) {
            return;
        }
        const Descriptor file(open(path.c_str(), O_RDWR | O_CLOEXEC));
        if (file) { mapping_ = Mapping(file, address.bytes); }
        data_ = mapping_.data();
        bytes_ = mapping_.bytes();
    }

    explicit operator bool() const noexcept { return data_ != nullptr; }
    std::byte* data() const noexcept { return data_; }

    /// Returns where this process finds the other's `address`; null if it is not in its memory window.
    std::byte* find(const void* address, std::size_t bytes) const noexcept {
        const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(address) - begin_;
        return offset < bytes_ && bytes <= bytes_ - offset ? data_ + offset : nullptr;
    }

  private:
    Mapping mapping_;
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
    std::uintptr_t begin_ = 0;
};

}  // namespace shardkit::mpi::detail
