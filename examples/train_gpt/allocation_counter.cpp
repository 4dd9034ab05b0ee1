// SPDX-License-Identifier: Apache-2.0
#include "allocation_counter.hpp"

#include <cstdlib>
#include <new>

namespace train_gpt {

namespace {

/// Accounts are never freed: a block's header points at its account for as long as the block lives.
struct ListedAccount : AllocationAccount {
    ListedAccount* next = nullptr;
};

std::atomic<ListedAccount*> accounts{nullptr};
AllocationAccount unassigned;
thread_local AllocationAccount* current_account = &unassigned;

/// In front of each block.
struct Header {
    std::size_t bytes;
    AllocationAccount* account;
};
static_assert(sizeof(Header) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);

/// Distance from what malloc gave to what the caller sees: room for the header, and aligned.
constexpr std::size_t lead(std::size_t alignment) noexcept {
    return alignment < __STDCPP_DEFAULT_NEW_ALIGNMENT__ ? __STDCPP_DEFAULT_NEW_ALIGNMENT__ : alignment;
}

void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
    const std::size_t front = lead(alignment);
    const std::size_t whole = (bytes + front + front - 1) / front * front;
    if (whole < bytes) { return nullptr; }
    void* base =
        alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__ ? std::malloc(whole) : std::aligned_alloc(front, whole);
    if (base == nullptr) { return nullptr; }
    std::byte* block = static_cast<std::byte*>(base) + front;
    AllocationAccount* account = current_account;
    ::new (static_cast<void*>(block - sizeof(Header))) Header{bytes, account};
    const std::size_t now = account->current.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    std::size_t peak = account->peak.load(std::memory_order_relaxed);
    while (now > peak && !account->peak.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {}
    account->allocations.fetch_add(1, std::memory_order_relaxed);
    return block;
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
    while (true) {
        if (void* block = allocate(bytes, alignment)) { return block; }
        const std::new_handler handler = std::get_new_handler();
        if (handler == nullptr) { throw std::bad_alloc(); }
        handler();
    }
}

void release(void* block, std::size_t alignment) noexcept {
    if (block == nullptr) { return; }
    auto* bytes = static_cast<std::byte*>(block);
    auto* header = std::launder(reinterpret_cast<Header*>(bytes - sizeof(Header)));
    header->account->current.fetch_sub(header->bytes, std::memory_order_relaxed);
    std::free(bytes - lead(alignment));
}

constexpr std::size_t plain = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

}  // namespace

CountedAllocations::CountedAllocations() : account_(nullptr), before_(current_account) {
    void* memory = std::malloc(sizeof(ListedAccount));
    if (memory == nullptr) { throw std::bad_alloc(); }
    auto* account = ::new (memory) ListedAccount;
    account->next = accounts.load();
    while (!accounts.compare_exchange_weak(account->next, account)) {}
    account_ = account;
    current_account = account;
}

CountedAllocations::~CountedAllocations() { current_account = before_; }

}  // namespace train_gpt

// Every form that the standard lets a program replace: scalar and array, throwing or not, with and without an
// alignment; the sized forms of delete say nothing that the header does not.
// clang-format off
using std::align_val_t, std::nothrow_t, std::size_t;
void* operator new(size_t n) { return train_gpt::allocate_or_throw(n, train_gpt::plain); }
void* operator new[](size_t n) { return train_gpt::allocate_or_throw(n, train_gpt::plain); }
void* operator new(size_t n, const nothrow_t&) noexcept { return train_gpt::allocate(n, train_gpt::plain); }
void* operator new[](size_t n, const nothrow_t&) noexcept { return train_gpt::allocate(n, train_gpt::plain); }
void* operator new(size_t n, align_val_t a) { return train_gpt::allocate_or_throw(n, static_cast<size_t>(a)); }
void* operator new[](size_t n, align_val_t a) { return train_gpt::allocate_or_throw(n, static_cast<size_t>(a)); }
void* operator new(size_t n, align_val_t a, const nothrow_t&) noexcept { return train_gpt::allocate(n, static_cast<size_t>(a)); }
void* operator new[](size_t n, align_val_t a, const nothrow_t&) noexcept { return train_gpt::allocate(n, static_cast<size_t>(a)); }
void operator delete(void* p) noexcept { train_gpt::release(p, train_gpt::plain); }
void operator delete[](void* p) noexcept { train_gpt::release(p, train_gpt::plain); }
void operator delete(void* p, size_t) noexcept { train_gpt::release(p, train_gpt::plain); }
void operator delete[](void* p, size_t) noexcept { train_gpt::release(p, train_gpt::plain); }
void operator delete(void* p, const nothrow_t&) noexcept { train_gpt::release(p, train_gpt::plain); }
void operator delete[](void* p, const nothrow_t&) noexcept { train_gpt::release(p, train_gpt::plain); }
void operator delete(void* p, align_val_t a) noexcept { train_gpt::release(p, static_cast<size_t>(a)); }
void operator delete[](void* p, align_val_t a) noexcept { train_gpt::release(p, static_cast<size_t>(a)); }
void operator delete(void* p, size_t, align_val_t a) noexcept { train_gpt::release(p, static_cast<size_t>(a)); }
void operator delete[](void* p, size_t, align_val_t a) noexcept { train_gpt::release(p, static_cast<size_t>(a)); }
void operator delete(void* p, align_val_t a, const nothrow_t&) noexcept { train_gpt::release(p, static_cast<size_t>(a)); }
void operator delete[](void* p, align_val_t a, const nothrow_t&) noexcept { train_gpt::release(p, static_cast<size_t>(a)); }
// clang-format on
