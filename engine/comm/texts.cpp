// SPDX-License-Identifier: MIT
#include "engine/comm/texts.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "engine/core/say.h"

namespace ab {

std::vector<std::string> gather_texts(Comm& comm, const std::string& mine) {
  const auto length = static_cast<std::int64_t>(mine.size());
  const Tensor lengths({comm.size()}, DType::int64);
  comm.all_gather(Tensor::from(std::vector<std::int64_t>{length}, {1}), lengths);
  const auto counts_span = lengths.span<std::int64_t>();
  const std::vector<std::int64_t> counts(counts_span.begin(), counts_span.end());
  std::vector<std::string> texts(counts.size());
  const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (total == 0) return texts;

  const auto* bytes = reinterpret_cast<const std::uint8_t*>(mine.data());
  const Tensor all({total}, DType::uint8);
  comm.all_gather_v(Tensor::from(std::span(bytes, mine.size()), {length}), all, counts);
  const char* from = static_cast<const char*>(all.raw());
  for (std::size_t rank = 0; rank < texts.size(); from += counts[rank++])
    texts[rank].assign(from, static_cast<std::size_t>(counts[rank]));
  return texts;
}

std::string first_failure(Comm& comm, const std::string& mine) {
  const std::vector<std::string> all = gather_texts(comm, mine);
  const auto first = std::ranges::find_if(all, [](const std::string& text) { return !text.empty(); });
  if (first == all.end() || comm.size() == 1) return mine;
  return fmt::format("rank {}: {}", first - all.begin(), *first);
}

std::string failures_of(Comm& comm, const std::function<void()>& part) {
  std::string reason;
  try {
    part();
  } catch (const std::exception& failure) {
    reason = in_our_words(failure).what();
  }
  return first_failure(comm, reason);
}

namespace {

class MpiBootstrap final : public Bootstrap {
 public:
  explicit MpiBootstrap(const CommOptions& options) : world_(make_mpi_comm(options)) {}

  int rank() const override { return world_->rank(); }
  int ranks() const override { return world_->size(); }
  std::vector<std::string> gather_texts(const std::string& mine) override { return ab::gather_texts(*world_, mine); }
  std::optional<Error> failure() override { return std::nullopt; }
  bool reports_failures() const override { return false; }
  void abort(const std::string& reason, int exit_code) noexcept override { world_->abort(reason, exit_code); }

 private:
  std::unique_ptr<Comm> world_;
};

}  // namespace

std::unique_ptr<Bootstrap> make_mpi_bootstrap(const CommOptions& options) {
  return std::make_unique<MpiBootstrap>(options);
}

}  // namespace ab
