// SPDX-License-Identifier: MIT
#include "engine/comm/share_cores.h"

#include "engine/comm/gather_texts.h"
#include "engine/core/available_cores.h"
#include "engine/core/threads.h"

namespace ab {

void set_compute_threads(int n, Comm& world) {
  const std::string machine = name_of_machine() + "\n";
  const AvailableCores own = available_cores();
  const Ledger of_training = world.ledger();
  const std::vector<std::string> of_all = gather_texts(world, machine + to_text(own));
  world.ledger() = of_training;
  std::vector<AvailableCores> here{own};
  for (std::size_t rank = 0; rank < of_all.size(); ++rank)
    if (static_cast<int>(rank) != world.rank() && of_all[rank].starts_with(machine))
      here.push_back(cores_from_text(of_all[rank].substr(machine.size())));
  set_compute_threads_within(n, cores_of_first(here));
}

}  // namespace ab
